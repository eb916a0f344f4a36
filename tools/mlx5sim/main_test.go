package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestUsage(t *testing.T) {
	faults := filepath.Join(t.TempDir(), "faults")
	if err := os.WriteFile(faults, []byte("request: drop\nrequest: explode\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   []string
		code   int
		out    string
		stdout bool
	}{
		{nil, 2, "no command", false},
		{[]string{"help"}, 0, "usage: mlx5sim run", true},
		{[]string{"walk"}, 2, `unknown command "walk"`, false},
		{[]string{"run", "-h"}, 0, "-nomount", true},
		{[]string{"run"}, 2, "no program", false},
		{[]string{"run", "--"}, 2, "no program", false},
		{[]string{"run", "-trance", "--", "true"}, 2, "-trance", false},
		{[]string{"run", "--", "true", "--and"}, 2, "program 2 of 2 is empty", false},
		{[]string{"run", "--", "--and", "true"}, 2, "program 1 of 2 is empty", false},
		{[]string{"run", "-devices", "0", "--", "true"}, 2, "want 1 to 16", false},
		{[]string{"run", "-devices", "x", "--", "true"}, 2, "-devices", false},
		{[]string{"run", "-ports", "3", "--", "true"}, 2, "want 1 or 2", false},
		{[]string{"run", "-wait", "-1s", "--", "true"}, 2, "want 0 or more", false},
		{[]string{"run", "-link", "wifi", "--", "true"}, 2, "want ib or eth", false},
		{[]string{"run", "-uar", "old", "--", "true"}, 2, "want dynamic or static", false},
		{[]string{"run", "-faults", faults + "none", "--", "true"}, 2, "-faults", false},
		{[]string{"run", "-faults", faults, "--", "true"}, 2, "line 2", false},
		{[]string{"run", "-pcap", faults + "none/packets", "--", "true"}, 2, "-pcap", false},
	} {
		var stdout, stderr bytes.Buffer
		code := command(c.args, nil, &stdout, &stderr)
		said, other := &stderr, &stdout
		if c.stdout {
			said, other = other, said
		}
		if code != c.code || !strings.Contains(said.String(), c.out) || other.Len() > 0 {
			t.Errorf("%q: status %d, stdout %q, stderr %q", c.args, code, stdout.String(), stderr.String())
		}
	}
}

func TestPrograms(t *testing.T) {
	o, err := parse([]string{"-devices", "3", "-link", "eth", "-uar", "static", "-ports", "2", "--", "a", "-b", "--and", "c", "--", "d"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(o.programs) != 2 || strings.Join(o.programs[0], " ") != "a -b" || strings.Join(o.programs[1], " ") != "c -- d" {
		t.Errorf("programs %q", o.programs)
	}
	m, err := o.model()
	if err != nil {
		t.Fatal(err)
	}
	d := m.Devices()
	if len(d) != 3 || d[2].Name() != "mlx5_2" || d[2].Ports() != 2 {
		t.Errorf("%d devices, the last is %s with %d ports", len(d), d[2].Name(), d[2].Ports())
	}
	if p, err := d[0].Port(2); err != nil || p.InfiniBand {
		t.Errorf("port %+v, %v", p, err)
	}
}
