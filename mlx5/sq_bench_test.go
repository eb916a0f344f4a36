package mlx5

import (
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// BenchmarkSend times Put and Publish per request, with plain memory in the place
// of the doorbell: what the library costs, and no device. The requests end at once,
// without their completions. Uncached memory, which a register is, takes longer.
func BenchmarkSend(b *testing.B) {
	sge := []cq.SGE{{Addr: 0x1000, Length: 64, LKey: 7}}
	inline := make([]byte, 64)
	for _, r := range []struct {
		name string
		tr   Transport
		cq.SendRequest
	}{
		{"inline64", RC, cq.SendRequest{Op: cq.OpSend, Flags: cq.Inline, Length: 64, Data: inline}},
		{"send", RC, cq.SendRequest{Op: cq.OpSend, Length: 64, SGEs: sge}},
		{"write", RC, cq.SendRequest{Op: cq.OpWrite, Length: 64, SGEs: sge, RemoteAddr: 0x2000, RKey: 9}},
		{"datagram", UD, cq.SendRequest{Op: cq.OpSend, Length: 64, SGEs: sge, AH: 1, DestQPN: 5, QKey: 6}},
	} {
		for _, batch := range []int{1, 32} {
			for _, bell := range []struct {
				name string
				make func([]byte) (*Doorbell, error)
			}{{"uncached", UncachedDoorbell}, {"BlueFlame", BlueFlame}} {
				b.Run(fmt.Sprintf("%s/batch=%d/%s", r.name, batch, bell.name), func(b *testing.B) {
					q := newTestQueue(b, r.tr, 64, bell.make)
					if r.tr == UD {
						addTestAddresses(b, q)
					}
					b.ReportAllocs()
					i := uint32(0)
					for b.Loop() {
						for range batch {
							r.WRID = cq.MakeWRID(1, cq.SendSide, i)
							q.Put(&r.SendRequest)
							i++
						}
						q.Publish()
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/request")
				})
			}
		}
	}
}

// BenchmarkRecv times Put and Publish of receives, 32 at a time.
func BenchmarkRecv(b *testing.B) {
	sge := []cq.SGE{{Addr: 0x1000, Length: 64, LKey: 7}}
	b.Run("own", func(b *testing.B) {
		q := newTestReceiver(b, 64, 1)
		i := uint32(0)
		b.ReportAllocs()
		for b.Loop() {
			for range 32 {
				q.Put(cq.MakeWRID(1, cq.RecvSide, i), sge)
				i++
			}
			q.Publish()
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*32), "ns/request")
	})
	b.Run("shared", func(b *testing.B) {
		q := newTestShared(b, testLimits, 64, 1)
		i := uint32(0)
		b.ReportAllocs()
		for b.Loop() {
			for range 32 {
				q.Put(cq.MakeWRID(1, cq.RecvSide, i%64), sge)
				i++
			}
			q.Publish()
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*32), "ns/request")
	})
}
