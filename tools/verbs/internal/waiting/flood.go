package waiting

import (
	"context"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/tools/verbs/internal/cputime"
)

// flooded is what came of a slice.
type flooded struct {
	Messages       uint64
	P50, P99, P999 float64 // usec
	Rate           float64 // messages per second
	CPU            float64 // processors

	mine time.Duration // processor time of the client
}

func newFlooded(h *cq.Histogram, took time.Duration) flooded {
	q := func(share float64) float64 { return float64(h.Quantile(share)) / 1e3 }
	n := h.Count()
	return flooded{Messages: n, P50: q(0.5), P99: q(0.99), P999: q(0.999), Rate: float64(n) / took.Seconds()}
}

// unsuitableError is why a way to wait does not suit the machine or the device.
type unsuitableError struct{ error }

func (e *unsuitableError) Unwrap() error { return e.error }

func (s *localServer) flood(v *variant, outstanding int, length time.Duration) (f flooded, err error) {
	w, err := s.wait(v)
	if err != nil {
		return f, err
	}
	done := make(chan error)
	go func() {
		release, err := v.how.own()
		defer release()
		if err == nil {
			f, err = s.e.flood(w, v.batch, outstanding, length)
		}
		done <- err
	}()
	if err := <-done; err != nil {
		w.Close()
		return f, err
	}
	return f, w.Close()
}

// patience is how long the last writes may take.
const patience = time.Minute

// flood keeps so many writes outstanding. It takes up to batch completions at a time, and
// posts as many writes behind one doorbell.
func (e *end) flood(w *poll.Waiter, batch, outstanding int, length time.Duration) (f flooded, err error) {
	var h cq.Histogram
	posted := make([]time.Time, outstanding)
	free := make([]uint64, outstanding) // numbers of writes that are not under way
	for i := range free {
		free[i] = uint64(i)
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), length+patience, fmt.Errorf("nothing completed for long: %w", context.DeadlineExceeded))
	defer cancel()
	var before cputime.Stamp
	warm := true
	begin := time.Now()
	now := begin
	for {
		if warm && now.Sub(begin) >= length/10 {
			warm = false
			h.Reset()
			if before, err = cputime.Process(); err != nil {
				return f, err
			}
			now = before.At
		}
		if !warm && now.Sub(before.At) >= length {
			break
		}
		n := min(len(free), batch)
		for _, id := range free[len(free)-n:] {
			posted[id] = now
			e.sq.WriteInline(id, e.peer, e.message[:])
		}
		free = free[:len(free)-n]
		if err := e.sq.Flush(); err != nil {
			return f, err
		}
		if len(free) > 0 {
			continue // the first ones
		}
		k, err := w.Wait(ctx, e.wcs[:batch])
		if err != nil {
			return f, err
		}
		now = time.Now()
		if free, err = e.written(e.wcs[:k], free); err != nil {
			return f, err
		}
		for _, id := range free {
			h.Record(uint64(now.Sub(posted[id])))
		}
	}
	after, err := cputime.Process()
	if err != nil {
		return f, err
	}
	f = newFlooded(&h, after.At.Sub(before.At))
	f.CPU = (after.Used() - before.Used()).Seconds() / after.At.Sub(before.At).Seconds()
	if f.Messages == 0 {
		return f, fmt.Errorf("no write completed within %v", length)
	}
	for len(free) < outstanding {
		k, err := w.Wait(ctx, e.wcs[:])
		if err != nil {
			return f, err
		}
		if free, err = e.written(e.wcs[:k], free); err != nil {
			return f, err
		}
	}
	return f, nil
}

// written appends the numbers of writes that have completed.
func (e *end) written(wcs []cq.WC, free []uint64) ([]uint64, error) {
	for i := range wcs {
		w := &wcs[i]
		if err := w.Err(); err != nil {
			return free, err
		}
		// The last answer to the client may complete late.
		if w.Side == cq.SendSide && w.Opcode == cq.OpWrite {
			free = append(free, w.ID)
		}
	}
	return free, nil
}
