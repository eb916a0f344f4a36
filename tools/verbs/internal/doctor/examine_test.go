package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write testdata again")

// Healthy machines are left alone.
func TestHealthyIsSilent(t *testing.T) {
	for name, m := range map[string]*machine{"RoCE": healthyRoCE(t), "soft-RoCE": healthySoft(t), "InfiniBand": healthyIB(t)} {
		t.Run(name, func(t *testing.T) {
			r := finds(t, m.node())
			if len(r.HeldBack) > 0 || r.Status() != StatusHealthy {
				t.Errorf("held back %+v, status %d", r.HeldBack, r.Status())
			}
		})
	}
}

// Names are words, and causes stand before their consequences.
func TestTable(t *testing.T) {
	var before []string
	for _, c := range Checks() {
		if c.Name == "" || strings.ToLower(c.Name) != c.Name || strings.Contains(c.Name, " ") || len(c.Name) > 12 || c.About == "" || c.Run == nil {
			t.Errorf("check %+v", c)
		}
		if slices.Contains(before, c.Name) {
			t.Errorf("two checks are called %s", c.Name)
		}
		for _, a := range c.After {
			if !slices.Contains(before, a) {
				t.Errorf("%s comes after %s, which is not above it", c.Name, a)
			}
		}
		before = append(before, c.Name)
	}
}

// says is a check that finds and fails as a test wants.
func says(name string, after []string, err error, findings ...Finding) Check {
	return Check{Name: name, About: "a test", After: after, Run: func(_ context.Context, n *Node) ([]Finding, error) {
		n.saw("%s looked", name)
		return findings, err
	}}
}

// What follows from a finding is held back, on the same object and on its parts, also over
// several steps.
func TestCausesHoldBack(t *testing.T) {
	r := Examine(t.Context(), healthyRoCE(t).node(), []Check{
		says("a", nil, nil, Finding{Severity: Warning, Object: "x", What: "cause"}, Finding{Severity: Note, Object: "y", What: "only a note"}),
		says("b", []string{"a"}, errors.Join(unseen("x", errors.New("no x")), unseen("z", errors.New("no z"))),
			Finding{Severity: Fault, Object: "x/1", What: "follows"}, Finding{Severity: Fault, Object: "xy", What: "another object"},
			Finding{Severity: Warning, Object: "y", What: "after a note"}, Finding{Severity: Fault, What: "of the machine"}),
		says("c", []string{"b"}, nil, Finding{Severity: Note, Object: "x", What: "two steps on"}),
		says("d", nil, nil, Finding{Severity: Note, Object: "x", What: "beside it"}),
	}, nil)
	var kept, held []string
	for _, f := range r.Findings {
		kept = append(kept, f.Check+" "+f.Severity.String()+" "+f.Object+" "+f.What)
	}
	for _, h := range r.HeldBack {
		held = append(held, h.Check+" "+h.What+" because of "+h.Because)
	}
	want := []string{"b fault xy another object", "b fault  of the machine", "a warning x cause", "b warning y after a note", "a note y only a note", "d note x beside it"}
	if d := cmp.Diff(want, kept); d != "" {
		t.Errorf("kept (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"b follows because of a", "c two steps on because of a"}, held); d != "" {
		t.Errorf("held back (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]NotLooked{{"b", "z", "no z"}}, r.NotLooked); d != "" {
		t.Errorf("not looked (-want +got):\n%s", d)
	}
}

// The exit status is that of the worst finding.
func TestStatus(t *testing.T) {
	for _, c := range []struct {
		findings []Finding
		want     int
	}{
		{nil, 0},
		{[]Finding{{Severity: Note}}, 0},
		{[]Finding{{Severity: Note}, {Severity: Warning}}, 1},
		{[]Finding{{Severity: Note}, {Severity: Fault}, {Severity: Warning}}, 3},
	} {
		r := Examine(t.Context(), healthyRoCE(t).node(), []Check{says("a", nil, errors.New("no matter"), c.findings...)}, nil)
		if r.Status() != c.want {
			t.Errorf("%v: status %d, want %d", c.findings, r.Status(), c.want)
		}
	}
}

// A check that hangs and one that panics are told, and the others made. The time is that of
// the bubble, which passes when nobody can go on.
func TestBrokenChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forever := make(chan struct{})
		defer close(forever)
		r := Examine(t.Context(), healthyRoCE(t).node(), []Check{
			{Name: "hangs", About: "a test", Run: func(_ context.Context, n *Node) ([]Finding, error) {
				n.saw("began")
				<-forever
				return nil, nil
			}},
			{Name: "panics", About: "a test", Run: func(context.Context, *Node) ([]Finding, error) { panic("oh") }},
			says("works", nil, nil),
		}, nil)
		want := []NotLooked{{Check: "hangs", Why: "no answer within 30s"}, {Check: "panics", Why: "a fault of verbs doctor itself, which is worth a report: oh"}}
		if d := cmp.Diff(want, r.NotLooked); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		if d := cmp.Diff([]string{"began", "", "works looked"}, []string{strings.Join(r.Checks[0].Saw, " "), strings.Join(r.Checks[1].Saw, " "), strings.Join(r.Checks[2].Saw, " ")}); d != "" {
			t.Errorf("saw (-want +got):\n%s", d)
		}
	})
}

// A cancelled examination says so of every check that had not ended.
func TestCancelled(t *testing.T) {
	forever := make(chan struct{})
	defer close(forever)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("interrupted"))
	r := Examine(ctx, healthyRoCE(t).node(), []Check{{Name: "hangs", Run: func(context.Context, *Node) ([]Finding, error) {
		<-forever
		return nil, nil
	}}}, nil)
	if d := cmp.Diff([]NotLooked{{Check: "hangs", Why: "interrupted"}}, r.NotLooked); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// sample is a report with everything in it.
func sample(t *testing.T) *Report {
	r := Examine(t.Context(), healthyRoCE(t).node(), []Check{
		says("files", nil, nil, Finding{
			Severity: Fault, Object: "mlx5_0", What: "this user may not open the device's file",
			Seen: "open /dev/infiniband/uverbs0: permission denied", Mend: "chown root:rdma /dev/infiniband/uverbs0\nchmod 0660 /dev/infiniband/uverbs0",
		}),
		says("limits", []string{"files"}, errors.New("/proc/self/limits:\npermission denied"), Finding{Severity: Warning, Object: "mlx5_0", What: "it has no queue pairs left"}),
		says("mtu", nil, unseen("mlx5_0/1", errors.New("no such file")), Finding{Severity: Note, Object: "mlx5_0/1", What: "a name with \x1b[31mcolour", Seen: "an MTU of 1500", Mend: "ip link set ens1 mtu 9000"}),
	}, nil)
	return r
}

// What reports look like is seen in testdata.
func TestGolden(t *testing.T) {
	r := sample(t)
	healthy := Examine(t.Context(), healthyRoCE(t).node(), []Check{says("a", nil, nil), says("b", nil, errors.New("permission denied"))}, nil)
	for name, write := range map[string]func(*bytes.Buffer) error{
		"report.txt":   func(b *bytes.Buffer) error { return r.WriteText(b, false) },
		"report-v.txt": func(b *bytes.Buffer) error { return r.WriteText(b, true) },
		"report.json":  func(b *bytes.Buffer) error { return r.WriteJSON(b) },
		"healthy.txt":  func(b *bytes.Buffer) error { return healthy.WriteText(b, false) },
		"healthy.json": func(b *bytes.Buffer) error { return healthy.WriteJSON(b) },
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := write(&b); err != nil {
				t.Fatal(err)
			}
			path := "testdata/" + name
			if *update {
				if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), b.String()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// JSON can be read back with the package's own types.
func TestJSONReadsBack(t *testing.T) {
	r := sample(t)
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var got Report
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	// JSON has no bytes that are not text; the escape is kept.
	if d := cmp.Diff(r, &got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
