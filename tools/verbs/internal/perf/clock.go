package perf

import "time"

// A stretch is a time in ticks, and by the clock: together they say how long a tick is.
type stretch struct {
	at       time.Time
	begin    int64
	duration time.Duration // 0: it has not ended
	ticks    int64
}

// start begins a stretch.
func (s *stretch) start() { *s = stretch{at: time.Now(), begin: ticks()} }

// now is how many ticks have gone by. Where counters of processors differ it is no less
// than 0.
func (s *stretch) now() int64 { return max(ticks()-s.begin, 0) }

// end ends the stretch.
func (s *stretch) end() { s.ticks, s.duration = max(s.now(), 1), max(time.Since(s.at), 1) }

// nsec is how many nanoseconds a tick has.
func (s *stretch) nsec() float64 { return float64(s.duration) / float64(s.ticks) }
