package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
)

// A bill of materials, in CycloneDX's JSON of version 1.6. Neither a time nor a serial number
// stands in it: the same binary has the same bill.
type bill struct {
	Format       string       `json:"bomFormat"`
	SpecVersion  string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Component  component  `json:"component"`
	Properties []property `json:"properties"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn,omitempty"`
}

// h1 is the property with a module's hash as go.sum has it: of the list of its files' hashes, so
// that it is no hash of a file and does not stand among those.
const h1 = "go:h1"

// bill says what the binary is made of, by what the linker left in it.
func (a artifact) bill() ([]byte, error) {
	main := component{
		Type: "application", Name: "verbs", Version: a.id.Version,
		PURL:   purl(a.info.Main.Path, a.id.Version) + "#tools/verbs",
		Hashes: []hash{{"SHA-256", a.sum()}},
	}
	main.Ref = main.PURL
	if a.id.Commit != "" {
		main.Properties = []property{{"git:commit", a.id.Commit}}
	}
	b := bill{
		Format: "CycloneDX", SpecVersion: "1.6", Version: 1,
		Metadata: metadata{Component: main, Properties: settings(a.info)},
	}
	for _, m := range a.info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c := component{Type: "library", Ref: purl(m.Path, m.Version), Name: m.Path, Version: m.Version, PURL: purl(m.Path, m.Version)}
		if m.Sum != "" {
			c.Properties = []property{{h1, m.Sum}}
		}
		b.Components = append(b.Components, c)
	}
	std := strings.TrimPrefix(a.info.GoVersion, "go")
	b.Components = append(b.Components, component{Type: "library", Ref: purl("std", std), Name: "std", Version: std, PURL: purl("std", std)})
	slices.SortFunc(b.Components, func(x, y component) int { return cmp.Compare(x.Ref, y.Ref) })
	all := dependency{Ref: main.Ref}
	for _, c := range b.Components {
		all.DependsOn = append(all.DependsOn, c.Ref)
	}
	// What the modules need of one another, the binary does not say.
	b.Dependencies = []dependency{all}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(b)
	return text.Bytes(), err
}

// settings are the flags and environment that the binary says it was built with.
func settings(info *debug.BuildInfo) []property {
	all := []property{{"go:version", info.GoVersion}, {"go:package", info.Path}}
	for _, s := range info.Settings {
		all = append(all, property{"go:build:" + s.Key, s.Value})
	}
	return all
}

// purl is a package URL of a Go module.
func purl(path, version string) string {
	return "pkg:golang/" + path + "@" + url.QueryEscape(version)
}
