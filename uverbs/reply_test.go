package uverbs

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
)

// A kernel that answers with whatever it likes: the life of a program ends with
// an error, or works, and everything closes.
func FuzzReply(f *testing.F) {
	for n := range byte(40) {
		f.Add(n, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
		f.Add(n, []byte{})
	}
	f.Add(byte(9), []byte{0, 0, 0, 0, 0, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, at byte, patch []byte) {
		r := &rig{k: fakekernel.New(fakekernel.Device{})}
		n := 0
		r.k.Tamper(func(c fakekernel.Call, attr uint16, out []byte) []byte {
			if n++; n != int(at) {
				return out
			}
			b := make([]byte, len(out))
			copy(b, out)
			for i, p := range patch {
				if i < len(b) {
					b[i] ^= p
				}
			}
			return b
		})
		err := r.make(false)
		r.k.Tamper(nil)
		if err == nil {
			// Without a handshake, whose goroutines take most of the time.
			err = errors.Join(r.a.Connect(t.Context(), r.b.Endpoint(), nil), r.b.Connect(t.Context(), r.a.Endpoint(), nil))
		}
		if err == nil {
			r.a.SendQueue().Send(1, r.mr.Span(0, 8))
			r.b.RecvQueue().Recv(2, r.mr.Span(8, 8))
			r.b.RecvQueue().Flush()
			r.a.SendQueue().Flush()
			var wcs [8]WC
			for _, q := range []*CQ{r.sendQ, r.recvQ} {
				if n, err := q.Poll(wcs[:]); n > 0 && err != nil {
					t.Errorf("%d completions with %v", n, err)
				}
			}
		}
		if r.dev != nil {
			r.dev.Close() // may say that a handle which was made up does not exist
			if err := r.dev.Close(); err == nil || errors.Is(err, ErrInUse) {
				t.Errorf("second Close: %v", err)
			}
		}
		if r.mem != nil {
			r.mem.Close()
		}
	})
}
