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
		for line := range strings.Lines(f.Mend) {
			if !pasteable(line) {
				t.Errorf("no shell takes %.3000q", line)
			}
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

// pasteable says whether a shell would take a line of Mend, if it is a command of the usual ones.
func pasteable(line string) bool {
	command, _, _ := strings.Cut(line, " # ")
	name, _, _ := strings.Cut(command, " ")
	switch name {
	case "chmod", "chown", "devlink", "dmesg", "docker", "echo", "ethtool", "export", "ip", "mkdir", "modprobe", "mount", "podman", "ps", "rdma", "rm", "rmdir", "setcap", "systemctl", "ulimit", "usermod":
		return !strings.ContainsAny(command, "()")
	}
	return true
}

// machines are those that are tampered with.
var machines = map[string]func(testing.TB) *machine{"RoCE": healthyRoCE, "soft-RoCE": healthySoft, "bare": withAdapter}

// Every file, in turn, is missing, a folder, a link that leads nowhere, or full of what
// does not belong there.
func TestHostileFiles(t *testing.T) {
	contents := []string{
		"", "\x00\x01\xff\xfe\x1b[31m\u202e", "-1", "99999999999999999999999", "0::/../../..\n", "1:2:3:4",
		strings.Repeat("a b:c\t9\n", 1000), strings.Repeat("9", 100_000),
	}
	for name, make := range machines {
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
	for i, content := range []string{"1", "mlx5_0 hca_handle=2 hca_object=2000\n", "24 30 0:22 / /sys rw - sysfs sysfs rw\n",
		"Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nCapEff:\tffffffffffffffff\nVmPin:\t99 kB\n"} {
		for which := byte(i); which < 60; which += 4 {
			f.Add(which, byte(i), []byte(content))
		}
	}
	makers := []func(testing.TB) *machine{healthyRoCE, healthySoft, healthyIB, withAdapter}
	f.Fuzz(func(t *testing.T, which, of byte, content []byte) {
		m := makers[int(of)%len(makers)](t)
		names := slices.Sorted(maps.Keys(m.files))
		m.put(names[int(which)%len(names)], string(content))
		survives(t, asking(m.node()))
	})
}
