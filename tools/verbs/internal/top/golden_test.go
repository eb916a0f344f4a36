package top

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/goverbs/goverbs/tools/openmetrics"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := "testdata/" + name
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", name, d)
	}
	plain(t, name, got)
}

// plain fails for a text that has anything but printable ASCII characters
// and the ends of lines.
func plain(t *testing.T, what, s string) {
	t.Helper()
	for i := range len(s) {
		if (s[i] < ' ' || s[i] > '~') && s[i] != '\n' {
			t.Fatalf("%s has byte %#x at %d: %q", what, s[i], i, s[max(0, i-40):min(len(s), i+20)])
		}
	}
}

// What is written of a machine, with and without a tracer, and in all forms.
func TestGolden(t *testing.T) {
	for name, w := range map[string]*world{"netlink": newWorld(), "traced": newWorld().traced()} {
		l := w.twoLooks(t)
		var text, terminal, line, metrics bytes.Buffer
		for _, err := range []error{
			WriteText(&text, l, Page{}), WriteText(&terminal, l, Page{Width: 100, Height: 40}), WriteJSON(&line, l), WriteMetrics(&metrics, l, Health{Up: true}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		golden(t, name+".txt", text.String())
		golden(t, name+"-terminal.txt", terminal.String())
		golden(t, name+".metrics", metrics.String())
		if strings.Count(line.String(), "\n") != 1 {
			t.Errorf("%s: the JSON is not one line", name)
		}
		var indented bytes.Buffer
		if err := json.Indent(&indented, line.Bytes(), "", "  "); err != nil {
			t.Fatal(err)
		}
		golden(t, name+".json", indented.String())
		if _, err := openmetrics.Parse(metrics.String()); err != nil {
			t.Error(err)
		}
		// A reader of the documented keys gets back what was written.
		var back Look
		d := json.NewDecoder(&line)
		d.DisallowUnknownFields()
		if err := d.Decode(&back); err != nil {
			t.Error(err)
		}
		var again bytes.Buffer
		if err := WriteJSON(&again, &back); err != nil {
			t.Fatal(err)
		}
		if want := compact(t, indented.Bytes()); again.String() != want+"\n" {
			t.Errorf("%s: read and written again:\n%s\nwant\n%s", name, again.String(), want)
		}
	}
}

func compact(t *testing.T, b []byte) string {
	t.Helper()
	var c bytes.Buffer
	if err := json.Compact(&c, b); err != nil {
		t.Fatal(err)
	}
	return c.String()
}

// No list is null, whatever there is.
func TestJSONListsAreLists(t *testing.T) {
	empty := &world{}
	empty.netlink.devices = map[uint32]*fakeDevice{}
	bare := &world{}
	bare.netlink.devices = map[uint32]*fakeDevice{1: {}}
	for _, w := range []*world{empty, bare} {
		var b bytes.Buffer
		if err := WriteJSON(&b, look(t, w.collector())); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"devices", "processes", "calls", "notes", "levels", "ports", "contexts", "pds", "cqs", "qps", "mrs", "srqs", "cm_ids", "missing", "counters"} {
			if strings.Contains(b.String(), `"`+key+`":null`) {
				t.Errorf("%s is null: %s", key, b.String())
			}
		}
		var text bytes.Buffer
		if err := WriteText(&text, look(t, w.collector()), Page{}); err != nil || !strings.Contains(text.String(), "first look, no rates yet") {
			t.Errorf("%v: %s", err, text.String())
		}
	}
}
