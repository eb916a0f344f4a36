package main

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// An aptSource is one place to get packages from, as the machine's own apt configuration has it.
type aptSource struct {
	uri, suite string
	components []string
	signedBy   string // a keyring, or "" when the configuration names none
}

// readAptSources reads all enabled binary sources below an apt configuration folder, normally
// /etc/apt. What cannot be read is left out: apt itself reports it better.
func readAptSources(etc string) []aptSource {
	files := []string{filepath.Join(etc, "sources.list")}
	for _, pattern := range []string{"*.list", "*.sources"} {
		m, _ := filepath.Glob(filepath.Join(etc, "sources.list.d", pattern)) // The pattern is constant and valid.
		files = append(files, m...)
	}
	var all []aptSource
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		if strings.HasSuffix(f, ".sources") {
			all = append(all, parseDeb822(string(b))...)
		} else {
			all = append(all, parseOneLine(string(b))...)
		}
	}
	return all
}

// parseOneLine parses the sources.list format: deb [option=value ...] uri suite component...
func parseOneLine(text string) []aptSource {
	var all []aptSource
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "#")
		rest, ok := strings.CutPrefix(line, "deb")
		if !ok || rest == "" || (rest[0] != ' ' && rest[0] != '\t' && rest[0] != '[') {
			continue
		}
		rest = strings.TrimSpace(rest)
		var s aptSource
		if strings.HasPrefix(rest, "[") {
			options, after, ok := strings.Cut(rest[1:], "]")
			if !ok {
				continue
			}
			for o := range strings.FieldsSeq(options) {
				if k, v, _ := strings.Cut(o, "="); strings.EqualFold(k, "signed-by") {
					s.signedBy = v
				}
			}
			rest = after
		}
		f := strings.Fields(rest)
		if len(f) < 2 {
			continue
		}
		s.uri, s.suite, s.components = strings.TrimSuffix(f[0], "/"), f[1], f[2:]
		all = append(all, s)
	}
	return all
}

// parseDeb822 parses the .sources format: stanzas of fields, where URIs and Suites may be lists and
// a line that starts with a blank continues the field.
func parseDeb822(text string) []aptSource {
	var all []aptSource
	fields := map[string]string{}
	flush := func() {
		if slices.Contains(strings.Fields(fields["types"]), "deb") && !strings.EqualFold(fields["enabled"], "no") {
			signed := fields["signed-by"]
			if strings.Contains(signed, "\n") {
				signed = "" // A key in the text itself; apt's trusted keys and Debian's keyring stand in for it.
			}
			for uri := range strings.FieldsSeq(fields["uris"]) {
				for suite := range strings.FieldsSeq(fields["suites"]) {
					all = append(all, aptSource{strings.TrimSuffix(uri, "/"), suite, strings.Fields(fields["components"]), signed})
				}
			}
		}
		clear(fields)
	}
	last := ""
	sc := bufio.NewScanner(strings.NewReader(text))
	for sc.Scan() {
		line := sc.Text()
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.TrimSpace(line) == "":
			flush()
		case line[0] == ' ' || line[0] == '\t':
			fields[last] += "\n" + strings.TrimSpace(line)
		default:
			k, v, _ := strings.Cut(line, ":")
			last = strings.ToLower(strings.TrimSpace(k))
			fields[last] = strings.TrimSpace(v)
		}
	}
	flush()
	return all
}

// debianReleases are the releases whose kernels rxevm knows, and the names that a configuration may
// use for them or for a later one.
var debianReleases = []string{"bullseye", "bookworm", "trixie", "forky", "sid", "oldoldstable", "oldstable", "stable", "testing", "unstable"}

// debianMirrors picks the addresses of Debian's main and security archives out of the machine's
// sources; "" where there is none.
func debianMirrors(sources []aptSource) (mainURI, securityURI string) {
	for _, s := range sources {
		if !slices.Contains(s.components, "main") {
			continue
		}
		release, pocket, _ := strings.Cut(s.suite, "-")
		if r, ok := strings.CutSuffix(s.suite, "/updates"); ok {
			release, pocket = r, "security"
		}
		if !slices.Contains(debianReleases, release) {
			continue
		}
		switch {
		case pocket == "security":
			if securityURI == "" {
				securityURI = s.uri
			}
		case mainURI == "":
			mainURI = s.uri
		}
	}
	return mainURI, securityURI
}
