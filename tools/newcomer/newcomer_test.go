package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"-h"}, 0, "usage: newcomer"},
		{[]string{"more"}, 2, `unexpected argument "more"`},
		{[]string{"-x"}, 2, "-x"},
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), c.args, &out, &errs); code != c.code || !strings.Contains(out.String()+errs.String(), c.want) {
			t.Errorf("%v: status %d, %q, %q", c.args, code, out.String(), errs.String())
		}
	}
}

func TestReadSteps(t *testing.T) {
	steps, err := readSteps("# x\n\n```sh\nnot this\n```\n\n" + section + ", in ten minutes\n\n```sh\nmkdir hello\ncd hello # go there\n```\n\nSave this as `main.go`:\n\n" +
		"```go\npackage main\n```\n\n```sh\nCGO_ENABLED=0 go build\ngo tool rxevm run -- /hello\n```\n\n## Next\n\n```sh\nnor this\n```\n")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, s := range steps {
		all = append(all, s.String())
	}
	if got := strings.Join(all, "; "); got != "mkdir hello; cd hello; save main.go; CGO_ENABLED=0 go build; go tool rxevm run -- /hello" {
		t.Errorf("%s", got)
	}
	if steps[2].text != "package main\n" || steps[3].guest || !steps[4].guest {
		t.Errorf("%+v", steps)
	}
	for _, bad := range []string{"# none", section + "\n", "\n" + section + "\n\n```sh\necho $HOME\n```\n", "\n" + section + "\n\n```sh\ncd\n```\n", "\n" + section + "\n\n```sh\ngo"} {
		if _, err := readSteps(bad); err == nil {
			t.Errorf("%q gives no error", bad)
		}
	}
}

// The README of the tree can be followed.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	steps, err := readSteps(string(text))
	if err != nil {
		t.Fatal(err)
	}
	files, guests := 0, 0
	for _, s := range steps {
		if s.file != "" {
			files++
		}
		if s.guest {
			guests++
		}
	}
	if files != 1 || guests == 0 {
		t.Errorf("%v", steps)
	}
}
