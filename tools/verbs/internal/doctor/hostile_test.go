package doctor

import (
	"bytes"
	"context"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
	"unicode"
)

// survives examines a machine that somebody has tampered with: no check may fall over, and
// what is printed is fit to be.
func survives(t testing.TB, n *Node) *Report {
	t.Helper()
	r := Examine(context.Background(), n, Checks(), &Options{Patience: 5 * time.Minute})
	for _, l := range r.NotLooked {
		if strings.Contains(l.Why, "fault of verbs doctor") || strings.Contains(l.Why, "no answer within") {
			t.Errorf("%s: %s", l.Check, l.Why)
		}
	}
	for _, f := range r.Findings {
		if f.What == "" || f.Seen == "" || f.Mend == "" || len(f.What) > 2000 || len(f.Seen) > 10000 || len(f.Mend) > 10000 {
			t.Errorf("finding %.3000q", f)
		}
	}
	var b bytes.Buffer
	if err := r.WriteText(&b, true); err != nil {
		t.Error(err)
	}
	if i := bytes.IndexFunc(b.Bytes(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
		t.Errorf("prints %q", b.Bytes()[max(0, i-20):min(b.Len(), i+20)])
	}
	if err := r.WriteJSON(&b); err != nil {
		t.Error(err)
	}
	return r
}

// healthy are the machines that have everything.
var healthy = map[string]func(testing.TB) *machine{"RoCE": healthyRoCE, "soft-RoCE": healthySoft, "InfiniBand": healthyIB, "bare": withAdapter}

// Every file, in turn, is missing, a folder, a link that leads nowhere, or full of what
// does not belong there.
func TestHostileFiles(t *testing.T) {
	contents := []string{
		"", "\n", "\x00\x01\xff\xfe\x1b[31m", "-1", "99999999999999999999999", "max", "0::/../../..\n", "0-99999999", "1:2:3:4",
		strings.Repeat("a b:c\t9\n", 1000), strings.Repeat("9", 100_000), "\u202e\u0007 reversed",
	}
	for name, make := range healthy {
		t.Run(name, func(t *testing.T) {
			for _, file := range slices.Sorted(maps.Keys(make(t).files)) {
				for _, c := range contents {
					m := make(t)
					m.put(file, c)
					survives(t, asking(m.node()))
				}
				m := make(t)
				delete(m.files, file)
				survives(t, asking(m.node()))
				m.symlink(file, "../../nowhere/at all")
				survives(t, asking(m.node()))
				m.files[file] = &fstest.MapFile{Mode: fs.ModeDir | 0o755}
				survives(t, asking(m.node()))
				if t.Failed() {
					t.Fatalf("with %s", file)
				}
			}
		})
	}
}

// asking wants much of a machine.
func asking(n *Node) *Node {
	n.Memlock, n.Pollers = 1<<40, 64
	return n
}

// A file that is larger than any is not read to its end.
func TestHugeFile(t *testing.T) {
	m := healthyRoCE(t)
	m.put("proc/self/status", strings.Repeat("Uid:\t0\t0\t0\t0\n", maxFile/10))
	r := survives(t, m.node())
	found := false
	for _, l := range r.NotLooked {
		found = found || l.Check == "memlock" && l.Why == "/proc/self/status: more than 4194304 bytes"
	}
	if !found {
		t.Errorf("not looked at: %+v", r.NotLooked)
	}
}

// FuzzFiles puts anything into any file.
func FuzzFiles(f *testing.F) {
	for i := range byte(60) {
		f.Add(i, byte(0), []byte("1"))
		f.Add(i, byte(1), []byte("mlx5_0 hca_handle=2 hca_object=2000\n"))
		f.Add(i, byte(2), []byte("Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nCapEff:\tffffffffffffffff\nVmPin:\t99 kB\n"))
		f.Add(i, byte(3), []byte("24 30 0:22 / /sys rw - sysfs sysfs rw\n"))
	}
	makers := []func(testing.TB) *machine{healthyRoCE, healthySoft, healthyIB, withAdapter}
	f.Fuzz(func(t *testing.T, which, of byte, content []byte) {
		m := makers[int(of)%len(makers)](t)
		names := slices.Sorted(maps.Keys(m.files))
		m.put(names[int(which)%len(names)], string(content))
		survives(t, asking(m.node()))
	})
}
