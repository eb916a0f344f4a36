package uverbs

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// silentFile swallows the doorbell: the device of these tests looks by itself, and
// the fake kernel, which the race detector can see, must not.
type silentFile struct{ kernel.File }

func (silentFile) Write([]byte) error { return nil }

// player is one of two goroutines that hand buffers to each other. The only thing
// that tells it that a buffer is its own again is a completion.
type player struct {
	post  func(id uint64) error
	q     *CQ
	mark  byte // what it leaves in the buffer
	finds byte // what it finds there
}

// handover is two players whose requests complete on the other's CQ.
type handover struct {
	*rig
	device  hiddenDevice
	players [2]*player
	buffers [][]byte // in the Go heap, where the detector looks
}

// newHandover makes two players. kind is whose requests carry the buffers: "send",
// "recv" or "srq".
func newHandover(t testing.TB, kind string) *handover {
	t.Helper()
	const buffers = 8
	h := &handover{rig: newRig(t, false, fakekernel.Device{})}
	for range buffers {
		h.buffers = append(h.buffers, make([]byte, 64))
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	h.dev.noWrite.Store(false)
	for i := range h.players {
		q, err := h.dev.NewCQ(255, nil)
		must(err)
		h.players[i] = &player{q: q, mark: byte(i + 1)}
	}
	for i, p := range h.players {
		// Everything that one player uses to post is its own.
		var mrs []*MR
		for _, b := range h.buffers {
			mr, err := h.pd.Register(b, LocalWrite)
			must(err)
			mrs = append(mrs, mr)
		}
		other := h.players[1-i]
		p.finds = other.mark
		if kind != "send" {
			p.finds = hiddenPayload
		}
		// Without Poll, no request of the planted race ever gives its room back.
		opts := &QPOptions{CQ: other.q, SendDepth: plantedTurns * buffers}
		if kind == "srq" {
			var err error
			opts.SRQ, err = h.pd.NewSRQ(nil)
			must(err)
		}
		qp, err := h.pd.NewQP(RC, opts)
		must(err)
		must(qp.Connect(t.Context(), h.a.Endpoint(), nil))
		m := move{to: other.q.half.(*rxeCQ).mapping.Bytes(), qpn: qp.QPN(), recv: true}
		rq := qp.RecvQueue()
		switch kind {
		case "send":
			m.from, m.recv = qp.half.(*rxeQP).send.Bytes(), false
			sq := qp.SendQueue()
			p.post = func(id uint64) error {
				sq.Send(id, mrs[id].All())
				return sq.Flush()
			}
		case "recv":
			m.from = qp.half.(*rxeQP).recv.Bytes()
		case "srq":
			m.from, rq = opts.SRQ.half.(*rxeSRQ).mapping.Bytes(), opts.SRQ.RecvQueue()
		}
		if m.recv {
			p.post = func(id uint64) error {
				rq.Recv(id, mrs[id].All())
				return rq.Flush()
			}
		}
		h.device.moves = append(h.device.moves, m)
	}
	h.dev.file = silentFile{h.dev.file}
	return h
}

// play lets both hand each buffer to the other so many times.
func (h *handover) play(t *testing.T, turns int, take func(p *player, wcs []WC) (int, error)) {
	var device, all sync.WaitGroup
	device.Go(h.device.run)
	end := time.Now().Add(patience)
	for i, p := range h.players {
		all.Go(func() {
			if i == 0 {
				for id, b := range h.buffers {
					fill(b, p.mark)
					if err := p.post(uint64(id)); err != nil {
						t.Error(err)
					}
				}
			}
			var wcs [4]WC
			for seen := 0; seen < turns*len(h.buffers); {
				n, err := take(p, wcs[:])
				if err != nil || time.Now().After(end) {
					t.Errorf("player %d: %d buffers came back: %v", i, seen, err)
					return
				}
				if n == 0 {
					runtime.Gosched()
				}
				for _, w := range wcs[:n] {
					seen++
					b := h.buffers[w.ID]
					for _, v := range b {
						if v != p.finds {
							t.Errorf("player %d: buffer %d has %#x, want %#x", i, w.ID, v, p.finds)
							return
						}
					}
					if i == 0 && seen > (turns-1)*len(h.buffers) {
						continue // it keeps the buffer
					}
					fill(b, p.mark)
					if err := p.post(w.ID); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	all.Wait()
	h.device.halt()
	device.Wait()
}

// fill is a loop of its own: clear and copy would be one access to the detector.
func fill(b []byte, v byte) {
	for i := range b {
		b[i] = v
	}
}

// A buffer goes from the goroutine that posts it to the one that polls its
// completion, and back the same way, with nothing else between the two: to the race
// detector that is clean, though it cannot see what the device does in between. For
// a send queue, a receive queue and an SRQ.
func TestRaceHandover(t *testing.T) {
	for _, kind := range []string{"send", "recv", "srq"} {
		t.Run(kind, func(t *testing.T) {
			h := newHandover(t, kind)
			h.play(t, 300, func(p *player, wcs []WC) (int, error) { return p.q.Poll(wcs) })
			for i, p := range h.players {
				if s := p.q.Stats(); s != (CQStats{}) {
					t.Errorf("player %d: dropped %+v", i, s)
				}
			}
		})
	}
}

// plantedRace asks for TestRacePlanted, in a process of its own.
const plantedRace = "GOVERBS_PLANTED_RACE"

// plantedTurns is how often each buffer is handed on there. The detector may miss a race,
// but not all of so many.
const plantedTurns = 20

// The game of TestRaceHandover has a race when the players learn of completions
// from the ring's memory instead of from Poll: so the detector does see the
// buffers, and does not see the device.
func TestRacePlanted(t *testing.T) {
	if os.Getenv(plantedRace) == "" {
		t.Skip("declared skip: the race of TestRaceIsSeen")
	}
	h := newHandover(t, "send")
	var next [2]uint32
	h.play(t, plantedTurns, func(p *player, wcs []WC) (int, error) {
		b, n := p.q.half.(*rxeCQ).mapping.Bytes(), 0
		for i := &next[p.mark-1]; n < len(wcs) && *i != peek32(b, 128); n++ {
			// Every buffer goes round in order.
			wcs[n] = WC{ID: uint64(*i) % uint64(len(h.buffers))}
			*i = (*i + 1) & peek32(b, 4)
			poke32(b, 256, *i)
		}
		return n, nil
	})
}

func TestRaceIsSeen(t *testing.T) {
	if !raceDetector {
		t.Skip("declared skip: there is no race detector in this build")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestRacePlanted$", "-test.v")
	cmd.Env = append(os.Environ(), plantedRace+"=1", "GORACE=halt_on_error=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("WARNING: DATA RACE")) || !bytes.Contains(out, []byte("uverbs.fill")) {
		t.Errorf("the planted race was not reported: %v\n%s", err, out)
	}
}
