package uverbs_test

import (
	"testing"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
)

// The whole of it, doorbell and kernel included, allocates nothing: post, flush,
// and poll or sleep until the completion is there, by both doorbells.
func TestGuestAllocatesNothing(t *testing.T) {
	for name, noWrite := range map[string]string{"write": "", "ioctl": "1"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GOVERBS_NOWRITE", noWrite)
			p := newPair(t, true)
			var wcs [4]uverbs.WC
			post := func() {
				p.b.RecvQueue().Recv(1, p.mr.Span(4096, 64))
				if err := p.b.RecvQueue().Flush(); err != nil {
					t.Fatal(err)
				}
				p.a.SendQueue().Send(2, p.mr.Span(0, 64))
				if err := p.a.SendQueue().Flush(); err != nil {
					t.Fatal(err)
				}
			}
			measure := func(how string, wait func() int) {
				if n := testing.AllocsPerRun(100, func() {
					post()
					for n := 0; n < 2; {
						n += wait()
					}
				}); n != 0 {
					t.Errorf("%s: %v allocations", how, n)
				}
			}
			measure("poll", func() int {
				n, err := p.q.Poll(wcs[:])
				if err != nil {
					t.Fatal(err)
				}
				return n
			})
			for how, e := range waysToWait() {
				w, err := poll.NewWaiter(e, p.q)
				if err != nil {
					t.Fatal(err)
				}
				ctx := t.Context()
				measure(how, func() int {
					n, err := w.Wait(ctx, wcs[:])
					if err != nil {
						t.Fatal(err)
					}
					return n
				})
				w.Close()
			}
		})
	}
}
