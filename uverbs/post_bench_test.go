package uverbs

import (
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// BenchmarkPostMLX5 times requests from the call to the doorbell, which is plain memory.
// They end at once.
func BenchmarkPostMLX5(b *testing.B) { benchmarkPost(b, newPlainQP(b, 256, 188)) }

// BenchmarkPostRxe is the same with soft-RoCE, whose doorbell is a call that does nothing.
func BenchmarkPostRxe(b *testing.B) {
	qp := newPlainSoftQP(b, 256, 188)
	qp.dev.file = deaf{}
	qp.sq.bell = newDoorbell(qp.QP)
	benchmarkPost(b, qp)
}

// deaf is a device that no doorbell reaches.
type deaf struct{ kernel.File }

func (deaf) Write([]byte) error { return nil }

func benchmarkPost(b *testing.B, qp *plainQP) {
	sq, mr := qp.SendQueue(), qp.mr
	data := make([]byte, 256)
	to := Remote{Addr: 1 << 32, Length: 4096, RKey: 9}
	for _, r := range []struct {
		name string
		post func(n int)
	}{
		{"SendInline16", func(n int) {
			for i := range n {
				sq.SendInline(uint64(i), data[:16])
			}
		}},
		{"SendInline64", func(n int) {
			for i := range n {
				sq.SendInline(uint64(i), data[:64])
			}
		}},
		{"SendInline64quiet", func(n int) {
			for i := range n {
				sq.SendInline(uint64(i), data[:64], Unsignaled)
			}
		}},
		{"WriteInline64", func(n int) {
			for i := range n {
				sq.WriteInline(uint64(i), to.At(64), data[:64])
			}
		}},
		{"Send", func(n int) {
			for i := range n {
				sq.Send(uint64(i), mr.Span(64, 64))
			}
		}},
		{"Write", func(n int) {
			for i := range n {
				sq.Write(uint64(i), to.At(64), mr.Span(64, 64))
			}
		}},
		{"Read", func(n int) {
			for i := range n {
				sq.Read(uint64(i), mr.Span(64, 64), to.At(64))
			}
		}},
	} {
		for _, batch := range []int{1, 32} {
			b.Run(fmt.Sprintf("%s/batch=%d", r.name, batch), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					r.post(batch)
					if err := sq.Flush(); err != nil {
						b.Fatal(err)
					}
					sq.requests.Pop(sq.requests.Tail() - 1)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/request")
			})
		}
	}
}
