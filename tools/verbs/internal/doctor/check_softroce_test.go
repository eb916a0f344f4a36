package doctor

import (
	"strings"
	"testing"
)

func TestStableVersion(t *testing.T) {
	for _, c := range []struct{ release, version, signature, want string }{
		{"6.1.0-57-amd64", "Linux version 6.1.0-57-amd64 (debian-kernel@lists.debian.org) (gcc-12) #1 SMP PREEMPT_DYNAMIC Debian 6.1.192-3 (2026-11-26)", "", "6.1.192"},
		{"6.12.118+deb13-amd64", "Linux version 6.12.118+deb13-amd64 (debian-kernel@lists.debian.org) #1 SMP PREEMPT_DYNAMIC Debian 6.12.118-1 (2026-11-20)", "", "6.12.118"},
		{"6.1.0-57-amd64", "Linux version 6.1.0-57-amd64", "", ""},
		{"5.15.0-91-generic", "Linux version 5.15.0-91-generic (buildd@lcy02) #101-Ubuntu SMP", "Ubuntu 5.15.0-91.101-generic 5.15.131", "5.15.131"},
		{"5.15.0-91-generic", "", "Ubuntu something", ""},
		{"5.14.0-427.13.1.el9_4.x86_64", "", "", ""},
		{"5.15.9-200.131.27.el8uek.x86_64", "", "", ""},
		{"6.4.0-150600.23.25-default", "", "", ""},
		{"6.5.6-300.fc39.x86_64", "", "", "6.5.6"},
		{"6.12.15", "", "", "6.12.15"},
		{"6.13.0-rc3", "", "", "6.13.0"},
		{"6.13.0", "", "", "6.13.0"},
		{"6.13", "", "", "6.13.0"},
		{"something", "", "", ""},
		{"", "", "", ""},
	} {
		m := blank(t, c.release)
		if c.version != "" {
			m.put("proc/version", c.version+"\n")
		}
		if c.signature != "" {
			m.put("proc/version_signature", c.signature+"\n")
		}
		v, from, ok := m.node().stableVersion()
		if got := v.String(); ok != (c.want != "") || ok && (got != c.want || from == "") {
			t.Errorf("%+v: %v, %q, %v", c, got, from, ok)
		}
	}
}

func TestSoftRoCE(t *testing.T) {
	for _, c := range []struct {
		release, machine string
		want             []wanted
	}{
		{"6.1.192", "x86_64", nil},
		{"6.12.111", "aarch64", nil},
		{"6.18.1", "x86_64", nil},
		{"6.12.20", "x86_64", []wanted{
			{"softroce", Fault, "", "uverbs.Open fails", "the kernel is 6.12.20: uname -r is 6.12.20", "boot Linux 6.12.21 or later"},
			{"softroce", Warning, "", "NewQP and NewCQ at a limit may crash it", "", "6.12.30"},
			{"softroce", Warning, "", "may hang", "", "6.12.53"},
			{"softroce", Warning, "", "SRQ.Resize", "", "6.12.63"},
		}},
		{"5.10.262", "x86_64", []wanted{{"softroce", Warning, "", "never completes", "", "boot Linux 5.11.0 or later"}}},
		{"6.2.16", "aarch64", []wanted{{"softroce", Warning, "", "read before it is written", "", "6.3.0"}}},
		{"6.2.16", "x86_64", nil},
	} {
		t.Run(c.release+" "+c.machine, func(t *testing.T) {
			m := healthySoft(t)
			m.release, m.machine = c.release, c.machine
			m.put("lib/modules/"+c.release+"/modules.builtin", "")
			findsOnly(t, m.node(), c.want...)
		})
	}
	// A ConnectX has nothing to do with it.
	m := healthyRoCE(t)
	m.release = "6.12.20"
	m.put("lib/modules/6.12.20/modules.builtin", "")
	findsOnly(t, m.node())
}

// The table says what a reader needs, and its runs of kernels are runs.
func TestSoftRoCETable(t *testing.T) {
	for _, b := range softRoCEBugs {
		if b.severity == Note || b.what == "" || strings.HasSuffix(b.what, ".") || len(b.bad) == 0 {
			t.Errorf("%+v", b)
		}
		last := version{5, 10, 0}
		for _, s := range b.bad {
			if s.from.compare(last) < 0 || s.to.compare(s.from) <= 0 {
				t.Errorf("%s: %v to %v", b.what, s.from, s.to)
			}
			last = s.to
		}
	}
}
