package uverbs_test

import (
	"bytes"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// Two goroutines hand buffers of the Go heap to each other through the kernel, and
// through nothing else: each posts them, and the other polls their completions. In a
// build with the race detector, which is linked statically to run in the guest,
//
//	go test -race -c -ldflags '-linkmode external -extldflags -static' ./uverbs
//
// it must stay silent, though nothing that the kernel does is visible to it.
func TestGuestRaceHandover(t *testing.T) {
	for _, kind := range []string{"write", "recv", "srq"} {
		t.Run(kind, func(t *testing.T) {
			const buffers, turns, size = 8, 40, 64
			p := newPair(t, false)
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			memory := make([][]byte, buffers)
			for i := range memory {
				memory[i] = make([]byte, size)
			}
			message := bytes.Repeat([]byte{0x77}, size)
			type player struct {
				q     *uverbs.CQ // where the other's requests complete
				post  func(id uint64) error
				mark  byte
				finds byte
				// posted counts receives for the sender, which only loads it:
				// so nothing goes from one player to the other that way.
				posted atomic.Int64
			}
			var players [2]*player
			sinkQ, err := p.dev.NewCQ(256, nil)
			must(err)
			for i := range players {
				q, err := p.dev.NewCQ(64, nil)
				must(err)
				players[i] = &player{q: q, mark: byte(i + 1)}
			}
			var senders []*uverbs.SendQueue
			for i, me := range players {
				other := players[1-i]
				me.finds = other.mark
				var mrs []*uverbs.MR
				for _, b := range memory {
					mr, err := p.pd.Register(b, uverbs.LocalWrite)
					must(err)
					mrs = append(mrs, mr)
				}
				opts := &uverbs.QPOptions{CQ: other.q}
				if kind == "srq" {
					opts.SRQ, err = p.pd.NewSRQ(nil)
					must(err)
				}
				qp, err := p.pd.NewQP(uverbs.RC, opts)
				must(err)
				sink, err := p.pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: sinkQ, Inline: size})
				must(err)
				must(qp.Connect(t.Context(), sink.Endpoint(), nil))
				must(sink.Connect(t.Context(), qp.Endpoint(), nil))
				rq := qp.RecvQueue()
				if kind == "srq" {
					rq = opts.SRQ.RecvQueue()
				}
				if kind == "write" {
					sq, to := qp.SendQueue(), p.mr.Remote()
					me.post = func(id uint64) error {
						sq.Write(id, to.At(size*id), mrs[id].All())
						return sq.Flush()
					}
					continue
				}
				me.finds = message[0]
				senders = append(senders, sink.SendQueue())
				me.post = func(id uint64) error {
					rq.Recv(id, mrs[id].All())
					err := rq.Flush()
					me.posted.Add(1)
					return err
				}
			}
			var all sync.WaitGroup
			end := time.Now().Add(2 * time.Minute)
			if len(senders) > 0 {
				all.Go(func() { // each message ends one receive
					sent := [2]int64{}
					for ends := 0; ends < 2*buffers*turns; {
						for i, sq := range senders {
							for sq.Room() > 0 && sent[i] < players[i].posted.Load() {
								sq.SendInline(uint64(sent[i]), message)
								sent[i]++
							}
							if err := sq.Flush(); err != nil {
								t.Error(err)
								return
							}
						}
						var wcs [16]uverbs.WC
						n, err := sinkQ.Poll(wcs[:])
						if err != nil || time.Now().After(end) {
							t.Errorf("%d messages were sent: %v", ends, err)
							return
						}
						for _, w := range wcs[:n] {
							if w.Err() != nil {
								t.Error(w.Err())
								return
							}
						}
						ends += n
						runtime.Gosched()
					}
				})
			}
			for i, me := range players {
				all.Go(func() {
					turn := func(id uint64) bool {
						for k := range memory[id] {
							memory[id][k] = me.mark
						}
						err := me.post(id)
						if err != nil {
							t.Error(err)
						}
						return err == nil
					}
					if i == 0 {
						for id := range uint64(buffers) {
							turn(id)
						}
					}
					var wcs [4]uverbs.WC
					for seen := 0; seen < turns*buffers; {
						n, err := me.q.Poll(wcs[:])
						if err != nil || time.Now().After(end) {
							t.Errorf("player %d: %d buffers came: %v", i, seen, err)
							return
						}
						if n == 0 {
							runtime.Gosched()
						}
						for _, w := range wcs[:n] {
							seen++
							if w.Err() != nil || w.ID >= buffers || !bytes.Equal(memory[w.ID], bytes.Repeat([]byte{me.finds}, size)) {
								t.Errorf("player %d: %+v, %x", i, w, memory[w.ID%buffers])
								return
							}
							if i == 0 && seen > (turns-1)*buffers {
								continue // it keeps the buffer
							}
							if !turn(w.ID) {
								return
							}
						}
					}
				})
			}
			all.Wait()
		})
	}
}
