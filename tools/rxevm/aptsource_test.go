package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseOneLine(t *testing.T) {
	got := parseOneLine(`# deb http://mirror.example/debian old main
deb http://mirror.example/debian bookworm main contrib # comment
deb-src http://mirror.example/debian bookworm main
deb [arch=amd64 signed-by=/k.gpg trusted=no] https://mirror.example/sec/ bookworm-security main
debian nonsense
deb http://mirror.example/onlyuri
deb [broken http://mirror.example/debian bookworm main
`)
	want := []aptSource{
		{"http://mirror.example/debian", "bookworm", []string{"main", "contrib"}, ""},
		{"https://mirror.example/sec", "bookworm-security", []string{"main"}, "/k.gpg"},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(aptSource{})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestParseDeb822(t *testing.T) {
	got := parseDeb822(`Types: deb deb-src
# a comment in a stanza
URIs: http://one.example/debian/
 http://two.example/debian
Suites: bookworm
 bookworm-updates
Components: main
Signed-By: /k.gpg

Enabled: no
Types: deb
URIs: http://three.example/debian
Suites: trixie
Components: main


Types: deb-src
URIs: http://four.example/debian
Suites: trixie
Components: main

Types: deb
URIs: http://five.example/debian
Suites: trixie
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc`)
	want := []aptSource{
		{"http://one.example/debian", "bookworm", []string{"main"}, "/k.gpg"},
		{"http://one.example/debian", "bookworm-updates", []string{"main"}, "/k.gpg"},
		{"http://two.example/debian", "bookworm", []string{"main"}, "/k.gpg"},
		{"http://two.example/debian", "bookworm-updates", []string{"main"}, "/k.gpg"},
		{"http://five.example/debian", "trixie", []string{"main"}, ""},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(aptSource{})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestMirrorsOfAMachine(t *testing.T) {
	etc := t.TempDir()
	if err := os.Mkdir(filepath.Join(etc, "sources.list.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"sources.list":                    "deb https://vendor.example/repo stable nonfree\n",
		"sources.list.d/debian.sources":   "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm bookworm-updates\nComponents: main\n\nTypes: deb\nURIs: http://mirror.example/sec\nSuites: bookworm-security\nComponents: main\n",
		"sources.list.d/vendor.list":      "deb https://vendor.example/x nodistro main\n",
		"sources.list.d/off.list.disable": "deb https://off.example/debian bookworm main\n",
	} {
		if err := os.WriteFile(filepath.Join(etc, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	main, sec := debianMirrors(readAptSources(etc))
	if main != "http://mirror.example/debian" || sec != "http://mirror.example/sec" {
		t.Errorf("mirrors %q and %q", main, sec)
	}
	if main, sec := debianMirrors([]aptSource{{"http://u.example", "noble", []string{"main"}, ""}}); main != "" || sec != "" {
		t.Errorf("another distribution's mirror was taken for Debian's: %q, %q", main, sec)
	}
	if _, sec := debianMirrors([]aptSource{{"http://old.example", "oldstable/updates", []string{"main"}, ""}}); sec != "http://old.example" {
		t.Errorf("the old name of the security suite: %q", sec)
	}
}
