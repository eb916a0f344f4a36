package mlx5

import (
	"bufio"
	"encoding/hex"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// recording is a file of testdata/recorded: its README.md has the format.
type recording struct {
	limits Limits
	cases  []recordedCase
}

type recordedCase struct {
	name  string
	lines []recordedLine
}

type recordedLine struct{ key, value string }

// loadRecording reads a file and fails on what it does not understand.
func loadRecording(t *testing.T, file string) recording {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "recorded", file))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var r recording
	for s := bufio.NewScanner(f); s.Scan(); {
		line := s.Text()
		if name, ok := strings.CutPrefix(line, "case "); ok {
			r.cases = append(r.cases, recordedCase{name: name})
			continue
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, value, ok := strings.Cut(line, " =")
		switch {
		case !ok:
			t.Fatalf("%s: line %q", file, line)
		case len(r.cases) > 0:
			c := &r.cases[len(r.cases)-1]
			c.lines = append(c.lines, recordedLine{key, strings.TrimSpace(value)})
		case key == "device":
			w := words(t, value)
			r.limits = Limits{SendBytes: w.number("max_sq_desc_sz"), RecvBytes: w.number("max_rq_desc_sz"), SendBlocks: w.number("max_send_wqebb"),
				RecvRequests: w.number("max_recv_wr"), SharedRequests: w.number("max_srq_recv_wr")}
		default:
			t.Fatalf("%s: line %q before the first case", file, line)
		}
	}
	if len(r.cases) == 0 || r.limits == (Limits{}) {
		t.Fatalf("%s: %d cases, limits %+v", file, len(r.cases), r.limits)
	}
	return r
}

// all returns the values of a key, in order.
func (c *recordedCase) all(key string) (values []string) {
	for _, l := range c.lines {
		if l.key == key {
			values = append(values, l.value)
		}
	}
	return values
}

// one returns the value of a key that is there once.
func (c *recordedCase) one(t *testing.T, key string) string {
	t.Helper()
	v := c.all(key)
	if len(v) != 1 {
		t.Fatalf("%s: %d values of %s", c.name, len(v), key)
	}
	return v[0]
}

// has says whether there is a key.
func (c *recordedCase) has(key string) bool { return len(c.all(key)) > 0 }

// recordedWords are the name=value words of a value.
type recordedWords struct {
	t *testing.T
	m map[string]string
}

func words(t *testing.T, value string) recordedWords {
	t.Helper()
	w := recordedWords{t, map[string]string{}}
	for _, f := range strings.Fields(value) {
		name, v, ok := strings.Cut(f, "=")
		if !ok {
			t.Fatalf("word %q of %q", f, value)
		}
		w.m[name] = v
	}
	return w
}

// wide returns the number of a name, and 0 if it is not there.
func (w recordedWords) wide(name string) uint64 {
	w.t.Helper()
	v, ok := w.m[name]
	if !ok {
		return 0
	}
	return parseNumber(w.t, v)
}

func (w recordedWords) number(name string) uint32 { return uint32(w.wide(name)) }

// set says whether one of a name's comma-separated words is flag.
func (w recordedWords) set(name, flag string) bool {
	for _, f := range strings.Split(w.m[name], ",") {
		if f == flag {
			return true
		}
	}
	return false
}

func parseNumber(t *testing.T, s string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func parseBytes(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// matches compares bytes with recorded ones, of which some may be anything: libmlx5
// did not write them, or they differ from run to run.
func matches(t *testing.T, got []byte, recorded string) bool {
	t.Helper()
	digits := strings.ReplaceAll(recorded, " ", "")
	if len(digits) != 2*len(got) {
		t.Fatalf("%d bytes recorded as %q", len(got), recorded)
	}
	for i, b := range got {
		d := digits[2*i : 2*i+2]
		if d != "--" && d != "??" && d != hex.EncodeToString([]byte{b}) {
			return false
		}
	}
	return true
}

// dump prints bytes as recordings do.
func dump(b []byte) string {
	var s []string
	for ; len(b) >= 4; b = b[4:] {
		s = append(s, hex.EncodeToString(b[:4]))
	}
	return strings.Join(append(s, hex.EncodeToString(b)), " ")
}
