package trace

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/uverbs"
)

// round arms the CQ, makes a completion and takes its event.
func (b *bench) round() error {
	if err := b.cq.Arm(false); err != nil {
		return err
	}
	q := b.writer.SendQueue()
	q.Write(1, b.to.At(8), b.from)
	if err := q.Flush(); err != nil {
		return err
	}
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Microsecond) {
		there, err := b.cq.TakeEvent()
		if err != nil {
			return err
		}
		if there {
			break
		}
		if time.Now().After(end) {
			return errors.New("no event")
		}
	}
	var wcs [8]uverbs.WC
	if k, err := b.cq.Poll(wcs[:]); k != 1 || err != nil {
		return fmt.Errorf("%d completions: %w", k, err)
	}
	return nil
}

func (b *bench) rounds(t *testing.T, n int) {
	t.Helper()
	for range n {
		if err := b.round(); err != nil {
			t.Fatal(err)
		}
	}
}

// checkEvents makes events and looks whether probes and pull counted the same.
func checkEvents(t *testing.T, tr *Tracer, b *bench, n int) {
	t.Helper()
	before := until(t, tr, b.id, "the CQ", func(q CQ) bool { return q.User != nil && q.Events != nil })
	b.rounds(t, n)
	// The probe at the end of the read runs after the read returned to nobody
	// else, so all is counted.
	q := until(t, tr, b.id, "the CQ", func(q CQ) bool { return q.User != nil && q.Events != nil })
	if got := q.Events.Count - before.Events.Count; got != uint64(n) {
		t.Errorf("probes counted %d events of %d", got, n)
	}
	if got := q.User.EventsRead - before.User.EventsRead; got != uint32(n) {
		t.Errorf("the pull counted %d events of %d", got, n)
	}
	w, old := q.Events.Wake, before.Events.Wake
	sum := uint64(0)
	for i := range w.Log2 {
		sum += w.Log2[i] - old.Log2[i]
	}
	if w.N-old.N != uint64(n) || sum != uint64(n) {
		t.Errorf("%d latencies, %d in the distribution, of %d events", w.N-old.N, sum, n)
	}
	if w.Max <= 0 || w.Total-old.Total < time.Duration(n) || w.Max > 2*patience {
		t.Errorf("latencies: %+v", w)
	}
	t.Logf("%d events, wake-up %v on average, %v at most", n, (w.Total-old.Total)/time.Duration(n), w.Max)
}

// Each completion event is counted once by its probe, once by the reading of
// the process, and its latency is measured.
func TestGuestTraceEvents(t *testing.T) {
	b := newBench(t, 8, 8, &uverbs.CQOptions{Events: true})
	tr := open(t, Options{Events: true})
	checkEvents(t, tr, b, 50)
	if l := tr.level(LevelEvents); l.Why != "fentry and fexit" {
		t.Errorf("%+v", l)
	}
}

// callsOf are the calls of this process, by name.
func callsOf(t *testing.T, tr *Tracer) map[string]Syscall {
	t.Helper()
	all, err := tr.Syscalls()
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]Syscall{}
	for _, c := range all {
		if c.PID == uint32(os.Getpid()) {
			byName[c.Via.String()+" "+c.Name] = c
		}
	}
	return byName
}

// checkCalls makes calls and looks whether the probes counted the same.
func checkCalls(t *testing.T, tr *Tracer, b *bench) {
	t.Helper()
	before := callsOf(t, tr)
	const pds, cqs, writes = 7, 5, 9
	for range pds {
		pd, err := b.dev.NewPD()
		if err != nil {
			t.Fatal(err)
		}
		if err := pd.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for range cqs {
		q, err := b.dev.NewCQ(4, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for range writes {
		b.write(t, 1)
	}
	after := callsOf(t, tr)
	for name, want := range map[string]uint64{
		"invoke-write IB_USER_VERBS_CMD_ALLOC_PD": pds,
		"ioctl UVERBS_METHOD_PD_DESTROY":          pds,
		"ioctl UVERBS_METHOD_CQ_CREATE":           cqs,
		"ioctl UVERBS_METHOD_CQ_DESTROY":          cqs,
		"write IB_USER_VERBS_CMD_POST_SEND":       writes,
	} {
		a, c := before[name], after[name]
		// A signal of the runtime may interrupt a call, which is then made again.
		made, failed := c.Count-a.Count, c.Failed-a.Failed
		if made-failed != want {
			t.Errorf("%s: %d calls of %d, %d failed", name, made, want, failed)
		}
		if c.Count > 0 && (c.Max <= 0 || c.Total < c.Max || c.Comm == "") {
			t.Errorf("%s: %+v", name, c)
		}
	}
	if t.Failed() {
		t.Log(after)
	}
}

// Calls are counted by process, method and way, failed ones too.
func TestGuestTraceSyscalls(t *testing.T) {
	b := newBench(t, 64, 64, nil)
	tr := open(t, Options{Syscalls: true})
	checkCalls(t, tr, b)
	f, err := os.OpenFile("/dev/infiniband/"+uverbsFile(t), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write([]byte{0xee, 0, 0, 0, 2, 0, 2, 0}); err == nil {
		t.Error("the kernel takes command 0xee")
	}
	if c := callsOf(t, tr)["write command 0xee"]; c.Count != 1 || c.Failed != 1 || c.Command != 0xee {
		t.Errorf("a command that there is not: %+v in %v", c, callsOf(t, tr))
	}
	if _, ok := abi.LookupCommand(0xee); ok {
		t.Error("0xee is a command")
	}
}

// uverbsFile is the device file of the first device.
func uverbsFile(t *testing.T) string {
	t.Helper()
	all, err := os.ReadDir("/dev/infiniband")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(e os.DirEntry) bool { return len(e.Name()) > 6 && e.Name()[:6] == "uverbs" })
	if i < 0 {
		t.Fatal("no device file")
	}
	return all[i].Name()
}
