package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// mutationsFolder is where the patches are, in the module.
const mutationsFolder = "testdata/mutations"

// A mutation is a bug, as a patch.
type mutation struct {
	name string // of the file, without .patch
	what string // a sentence
	pkg  string // the folder of the test's package, with slashes
	test string // as -run of go test has it
	env  []string
	hang bool

	path  string // of the file
	hunks []hunk
}

// A hunk is a place that a patch changes.
type hunk struct {
	file     string // with slashes, from the module's root on
	old, new string // the lines, with their context
}

// load reads the mutations of a folder.
func load(dir string) ([]*mutation, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("there is no patch in %s", dir)
	}
	var all []*mutation
	var errs []error
	for _, p := range paths {
		text, err := os.ReadFile(p)
		if err != nil {
			return nil, err
		}
		m, err := parseMutation(string(text))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p, err))
			continue
		}
		m.name, m.path = strings.TrimSuffix(filepath.Base(p), ".patch"), p
		all = append(all, m)
	}
	return all, errors.Join(errs...)
}

// parseMutation reads a patch.
func parseMutation(text string) (*mutation, error) {
	m := new(mutation)
	lines := strings.SplitAfter(text, "\n")
	for len(lines) > 0 && !isDiff(lines[0]) {
		if err := m.header(strings.TrimSpace(lines[0])); err != nil {
			return nil, err
		}
		lines = lines[1:]
	}
	if err := m.diff(lines); err != nil {
		return nil, err
	}
	switch {
	case m.what == "":
		return nil, errors.New("it has no line what: SENTENCE")
	case m.pkg == "":
		return nil, errors.New("it has no line package: FOLDER")
	case m.test == "":
		return nil, errors.New("it has no line test: REGEXP")
	}
	return m, nil
}

func isDiff(line string) bool {
	return strings.HasPrefix(line, "diff ") || strings.HasPrefix(line, "--- ")
}

// header reads a line before the diff.
func (m *mutation) header(line string) error {
	if line == "" {
		return nil
	}
	key, value, ok := strings.Cut(line, ":")
	value = strings.TrimSpace(value)
	if !ok || value == "" {
		return fmt.Errorf("%q: a line before the diff is key: value", line)
	}
	one := map[string]*string{"what": &m.what, "package": &m.pkg, "test": &m.test}[key]
	switch {
	case one != nil && *one != "":
		return fmt.Errorf("%s: is there twice", key)
	case one != nil:
		*one = value
	case key == "env":
		if !strings.Contains(value, "=") {
			return fmt.Errorf("env: %s: want NAME=VALUE", value)
		}
		m.env = append(m.env, value)
	case key == "hang":
		if m.hang = value == "yes"; !m.hang {
			return fmt.Errorf("hang: %s: want yes, or no such line", value)
		}
	default:
		return fmt.Errorf("%q: the keys are what, package, test, env and hang", key)
	}
	switch key {
	case "package":
		if m.pkg = path.Clean(value); !filepath.IsLocal(m.pkg) {
			return fmt.Errorf("package: %s: want a folder of the module", value)
		}
	case "test":
		if _, err := regexp.Compile(m.firstTest()); err != nil {
			return fmt.Errorf("test: %w", err)
		}
	}
	return nil
}

// firstTest is the part of the regular expression that the test's name matches: those of
// subtests follow.
func (m *mutation) firstTest() string {
	first, _, _ := strings.Cut(m.test, "/")
	return first
}

// diff reads the diff.
func (m *mutation) diff(lines []string) error {
	file := ""
	for _, line := range lines {
		text := strings.TrimSuffix(line, "\n")
		inside := len(m.hunks) > 0 && m.hunks[len(m.hunks)-1].file == file
		switch {
		case strings.HasPrefix(text, "--- "):
			name, ok := strings.CutPrefix(text, "--- a/")
			if !ok || !filepath.IsLocal(name) {
				return fmt.Errorf("%q: want a file of the module, --- a/FILE", text)
			}
			if strings.HasSuffix(name, "_test.go") {
				return fmt.Errorf("it changes %s: a bug in a test proves nothing", name)
			}
			file = name
		case strings.HasPrefix(text, "+++ "):
			if text != "+++ b/"+file {
				return fmt.Errorf("%q after --- a/%s: a bug is a change of a file", text, file)
			}
		case strings.HasPrefix(text, "@@ ") && file != "":
			m.hunks = append(m.hunks, hunk{file: file})
		case inside && line != "":
			h := &m.hunks[len(m.hunks)-1]
			switch line[0] {
			case ' ':
				h.old, h.new = h.old+line[1:], h.new+line[1:]
			case '-':
				h.old += line[1:]
			case '+':
				h.new += line[1:]
			}
		}
	}
	if len(m.hunks) == 0 {
		return errors.New("it has no diff")
	}
	return nil
}
