package rxe

import (
	"fmt"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cq"
)

// BenchmarkPoll times Poll alone: a lap of completions is written, then drained
// in batches on the clock. One iteration is one lap.
func BenchmarkPoll(b *testing.B) {
	for _, kind := range []string{"recv", "send"} {
		for _, qps := range []int{1, 64} {
			for _, batch := range []int{1, 16, 32, 64} {
				b.Run(fmt.Sprintf("%s/qps=%d/batch=%d", kind, qps, batch), func(b *testing.B) {
					benchmarkPoll(b, kind == "recv", qps, batch)
				})
			}
		}
	}
}

func benchmarkPoll(b *testing.B, recv bool, qps, batch int) {
	const slots = 512
	const lap = 448 // a multiple of every batch and number of QPs
	var eps cq.Endpoints
	var state cq.State
	mem := heapRing(slots, 128, 0)
	q, err := NewCQ(mem, &eps, &state)
	if err != nil {
		b.Fatal(err)
	}
	driver := newCompleter(mem)
	parties := make([]*party, qps)
	for i := range parties {
		parties[i] = newParty(&eps, &state, uint32(17+i), uint32(lap/qps))
	}
	wcs := make([]cq.WC, batch)
	var elapsed time.Duration
	b.ReportAllocs()
	laps := 0
	for b.Loop() {
		for i := range lap {
			p := parties[i%qps]
			if recv {
				driver.post(&cqe{wrid: p.postRecv(uint64(i), 64), opcode: 128, bytes: 64, qpn: p.ep.QPN, flags: 1})
			} else {
				wrid, _ := p.postSend(uint64(i), cq.OpWrite, 64, false)
				driver.post(&cqe{wrid: wrid, opcode: 1, bytes: 64, qpn: p.ep.QPN})
			}
		}
		driver.publish()
		got := 0
		start := time.Now()
		for drained := false; !drained; {
			var n int
			n, drained = q.Poll(wcs)
			got += n
		}
		elapsed += time.Since(start)
		if got != lap {
			b.Fatalf("%d of %d completions", got, lap)
		}
		laps++
	}
	b.ReportMetric(float64(elapsed.Nanoseconds())/float64(laps*lap), "ns/CQE")
}

func BenchmarkPollEmpty(b *testing.B) {
	q, err := NewCQ(heapRing(512, 128, 0), &cq.Endpoints{}, &cq.State{})
	if err != nil {
		b.Fatal(err)
	}
	wcs := make([]cq.WC, 32)
	b.ReportAllocs()
	for b.Loop() {
		if n, drained := q.Poll(wcs); n != 0 || !drained {
			b.Fatal("completions out of nothing")
		}
	}
}

// BenchmarkPost times Put of a batch and its Publish, per request.
func BenchmarkPost(b *testing.B) {
	sge := []cq.SGE{{Addr: 0x1000, Length: 64, LKey: 7}}
	inline := make([]byte, 64)
	for _, r := range []struct {
		name string
		cq.SendRequest
	}{
		{"send", cq.SendRequest{Op: cq.OpSend, Length: 64, SGEs: sge}},
		{"write", cq.SendRequest{Op: cq.OpWrite, Length: 64, SGEs: sge, RemoteAddr: 0x2000, RKey: 9}},
		{"inline", cq.SendRequest{Op: cq.OpSend, Flags: cq.Inline, Length: 64, Data: inline}},
	} {
		for _, batch := range []int{1, 32} {
			b.Run(fmt.Sprintf("%s/batch=%d", r.name, batch), func(b *testing.B) {
				q, err := NewSQ(heapRing(128, 512, 0), 4, 64)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				for b.Loop() {
					for i := range batch {
						r.WRID = uint64(i)
						q.Put(&r.SendRequest)
					}
					q.Publish()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/request")
			})
		}
	}
	b.Run("recv/batch=32", func(b *testing.B) {
		q, err := NewRQ(heapRing(128, 64, 0), 1)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			for i := range 32 {
				q.Put(uint64(i), sge)
			}
			q.Publish()
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*32), "ns/request")
	})
}
