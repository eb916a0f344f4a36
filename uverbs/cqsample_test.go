package uverbs

import (
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

// sampledRig is a rig whose queues time requests.
func sampledRig(t *testing.T, every int) (*rig, *CQ) {
	t.Helper()
	r := newRig(t, false)
	q, err := r.dev.NewCQ(200, &CQOptions{Events: true, Stats: &StatsOptions{Sample: every}})
	if err != nil {
		t.Fatal(err)
	}
	r.a, r.b = sampledQP(t, r, q), sampledQP(t, r, r.recvQ)
	if err := r.connect(); err != nil {
		t.Fatal(err)
	}
	return r, q
}

func sampledQP(t *testing.T, r *rig, q *CQ) *QP {
	t.Helper()
	qp, err := r.pd.NewQP(RC, &QPOptions{CQ: q, SendDepth: 16, RecvDepth: 8})
	if err != nil {
		t.Fatal(err)
	}
	return qp
}

func (r *rig) post(t *testing.T, n int, flags ...SendFlags) {
	t.Helper()
	for range n {
		r.a.SendQueue().Write(1, r.peer.Regions[0].At(0), r.mr.Span(0, 8), flags...)
	}
	if err := r.a.SendQueue().Flush(); err != nil {
		t.Fatal(err)
	}
}

// free fails the test unless no sample is under way.
func (m *cqMeter) free(t *testing.T) {
	t.Helper()
	if taken, set := m.samples.taken.Load(), m.samples.set.Load(); taken != 0 || set != 0 {
		t.Errorf("places taken: %b, set: %b", taken, set)
	}
	for i := range m.samples.places {
		if m.samples.places[i].by != nil {
			t.Errorf("place %d keeps a queue", i)
		}
	}
}

// Requests of which the program hears are timed, once, and no others.
func TestSamples(t *testing.T) {
	r, q := sampledRig(t, 1)
	m := metered(q)
	count := func(want uint64, what string) {
		t.Helper()
		if s := q.Stats().PostToCompletion; s.Count != want || want > 0 && (s.Max <= 0 || s.P50 > s.Max) {
			t.Errorf("%s: %+v, want %d", what, s, want)
		}
		m.free(t)
	}
	r.post(t, 1)
	time.Sleep(2 * time.Millisecond) // the poll comes late: that counts
	wait(t, q, 1)
	count(1, "one request")
	if s := q.Stats().PostToCompletion; s.P50 < 2*time.Millisecond {
		t.Errorf("%v", s.P50)
	}
	r.post(t, 3)
	wait(t, q, 3)
	count(2, "a flush of three")
	r.post(t, 3, Unsignaled)
	count(2, "quiet ones")
	r.post(t, 1)
	wait(t, q, 1)
	count(3, "one after quiet ones")
	r.post(t, 2, Unsignaled)
	r.post(t, 1)
	wait(t, q, 1)
	count(4, "one more")

	// One that fails is not timed, nor those that it flushes.
	bad := r.peer.Regions[0]
	bad.RKey ^= 0x5500
	r.a.SendQueue().Write(1, bad.At(0), r.mr.Span(0, 8))
	r.post(t, 1)
	if w := wait(t, q, 2); w[0].Status != StatusRemoteAccess || w[1].Status != StatusFlushed {
		t.Fatalf("%+v", w)
	}
	count(4, "a failure")
}

// A request that is taken back is not timed, and the one that gets its number then is
// timed by itself.
func TestSampleTakenBack(t *testing.T) {
	r, q := sampledRig(t, 1)
	m := metered(q)
	sq := r.a.SendQueue()
	sq.Write(1, r.peer.Regions[0].At(0), r.mr.Span(0, 8))
	// As where a doorbell fails, once the request was published.
	sq.requests.Commit()
	sq.ring.Publish()
	if m.samples.set.Load() == 0 {
		t.Fatal("not noted")
	}
	sq.takeBack(1)
	r.post(t, 1)
	wait(t, q, 1)
	if s := q.Stats().PostToCompletion; s.Count != 1 {
		t.Errorf("%+v, want the second alone", s)
	}
	m.free(t)
}

// A sample of a queue pair that was closed, or reset, is let go, unrecorded.
func TestSampleOfGone(t *testing.T) {
	for name, end := range map[string]func(r *rig) error{
		"closed": func(r *rig) error { return r.a.Close() },
		"reset":  func(r *rig) error { return r.a.Modify(StateReset) },
	} {
		t.Run(name, func(t *testing.T) {
			r, q := sampledRig(t, 1)
			m := metered(q)
			sq := r.a.SendQueue()
			sq.Write(1, r.peer.Regions[0].At(0), r.mr.Span(0, 8))
			sq.requests.Commit()
			sq.ring.Publish() // without a doorbell: it is not carried out
			if m.samples.set.Load() == 0 {
				t.Fatal("not noted")
			}
			if err := end(r); err != nil {
				t.Fatal(err)
			}
			// Others go on.
			r.a, r.b = sampledQP(t, r, q), sampledQP(t, r, r.recvQ)
			if err := r.connect(); err != nil {
				t.Fatal(err)
			}
			r.post(t, 1)
			for range 20 {
				wait(t, q, 1)
				if q.Stats().ByStatus[StatusSuccess] > 0 {
					break
				}
			}
			if s := q.Stats(); s.PostToCompletion.Count != 1 {
				t.Errorf("%+v, want the one of the other queue pair", s.PostToCompletion)
			}
			m.free(t)
		})
	}
}

// As many requests are timed as was asked for, wherever in the batches they are, and
// requests for which there is no place are not.
func TestSampleRate(t *testing.T) {
	r, q := sampledRig(t, 8)
	rnd := rand.New(rand.NewPCG(7, 8))
	const total = 8000
	for n := 0; n < total; {
		k := 1 + rnd.IntN(4)
		r.post(t, k)
		wait(t, q, k)
		n += k
	}
	// At most one a flush, so somewhat fewer.
	if n := q.Stats().PostToCompletion.Count; n < total/8*7/10 || n > total/8*12/10 {
		t.Errorf("%d of %d are timed, want about %d", n, total, total/8)
	}
	metered(q).free(t)

	r, q = sampledRig(t, 1)
	for range 16 {
		r.post(t, 1)
	}
	wait(t, q, 16)
	if n := q.Stats().PostToCompletion.Count; n != 8 {
		t.Errorf("%d of 16 outstanding are timed, want 8", n)
	}
	metered(q).free(t)
}

// Without samples the ring of a send queue is the provider's own, and arms are not timed.
func TestNoSamples(t *testing.T) {
	r, q := sampledRig(t, -1)
	if _, ok := r.a.sq.ring.(*sampler); ok {
		t.Error("the ring is a sampler")
	}
	if err := q.Arm(false); err != nil {
		t.Fatal(err)
	}
	r.post(t, 1)
	for {
		if ok, err := q.TakeEvent(); err != nil {
			t.Fatal(err)
		} else if ok {
			break
		}
	}
	wait(t, q, 1)
	if s := q.Stats(); s.Events != 1 || s.Spurious != 0 || s.ArmToEvent.Count != 0 || s.PostToCompletion.Count != 0 {
		t.Errorf("%+v", s)
	}
}

// Events are counted, and those that tell of nothing.
func TestStatsEvents(t *testing.T) {
	r, q := sampledRig(t, 2)
	event := func() {
		t.Helper()
		for {
			if ok, err := q.TakeEvent(); err != nil {
				t.Fatal(err)
			} else if ok {
				return
			}
		}
	}
	for i := range 4 {
		if err := q.Arm(false); err != nil {
			t.Fatal(err)
		}
		r.post(t, 1)
		if i%2 == 1 { // the program is there before the event is
			wait(t, q, 1)
		}
		event()
		if n, err := q.Poll(make([]WC, 4)); n != 1-i%2 || err != nil {
			t.Fatal(n, err)
		}
		q.Poll(make([]WC, 4)) // which is no wake-up
	}
	if s := q.Stats(); s.Events != 4 || s.Spurious != 2 || s.ArmToEvent.Count != 2 || s.ArmToEvent.Max <= 0 {
		t.Errorf("%+v", s)
	}
}

// Posting to a queue that times requests allocates nothing.
func TestSamplesAllocateNothing(t *testing.T) {
	if raceDetector {
		t.Skip("declared skip: the race detector itself allocates")
	}
	r, q := sampledRig(t, 1)
	sq := r.a.SendQueue()
	wcs := make([]WC, 4)
	if n := testing.AllocsPerRun(100, func() {
		sq.Write(1, r.peer.Regions[0].At(0), r.mr.Span(0, 8))
		sq.requests.Commit()
		sq.ring.Publish()
		sq.takeBack(1)
		metered(q).collect(false)
		q.Poll(wcs)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A doorbell that the kernel refuses for good ends as it did, with samples too.
func TestSampleOfRefused(t *testing.T) {
	r, q := sampledRig(t, 1)
	sq := r.a.SendQueue()
	sq.Write(1, r.peer.Regions[0].At(0), r.mr.Span(0, 8))
	sq.requests.Commit()
	sq.ring.Publish()
	if err := sq.unrung(1, syscall.ENOENT); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("%v", err)
	}
	r.post(t, 1)
	wait(t, q, 1)
	if s := q.Stats().PostToCompletion; s.Count != 1 {
		t.Errorf("%+v", s)
	}
	metered(q).free(t)
}

// A request of a queue that is timed is explained in full.
func TestExplainTimed(t *testing.T) {
	r, q := sampledRig(t, 1)
	r.peer.Regions[0].RKey ^= 0x5500
	r.post(t, 1)
	w := wait(t, q, 1)[0]
	if e := q.Explain(&w); !e.IsFirst || e.Request == nil || !e.Request.Details || len(e.Request.Spans) != 1 {
		t.Errorf("%v", e)
	}
}
