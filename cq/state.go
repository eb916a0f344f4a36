package cq

import "sync/atomic"

// State is what the poller of one completion queue and the rest of the program
// tell each other. The poller loads one word a batch; all else is rare.
type State struct {
	word atomic.Uint32

	// Stray counts completions that belong to no outstanding request: stale
	// ones, and what a broken device invents. Late counts completions of
	// QPs that were closed before they were polled.
	Stray, Late atomic.Uint64

	// Failures, by Status, are the completions of this poll that failed; the last
	// place is for all greater numbers too. Who counts makes it, before the first
	// poll, and the poller takes them out. So a poll that finds none need not look
	// for any.
	Failures []uint32
}

// The bits of a State's word.
const (
	// Closed: the queue is closed, its memory is no longer the device's.
	Closed uint32 = 1 << iota
	// Mail: somebody left work for the poller.
	Mail
	// Dead: the device says that the queue lost completions, or is gone.
	Dead
	// Shared: several goroutines poll, so each poll takes a lock.
	Shared
	// Metered: somebody counts what each poll finds.
	Metered
	// Due: who counts has something to do before the next poll.
	Due
	// Look: who counts has to look at what the next poll finds, or this one found:
	// some of it failed, or somebody waits for it.
	Look
)

// Load returns the word. It is one plain load on every architecture's fast
// path.
func (s *State) Load() uint32 { return s.word.Load() }

// Set sets bits of the word.
func (s *State) Set(bits uint32) { s.word.Or(bits) }

// Clear clears bits of the word.
func (s *State) Clear(bits uint32) { s.word.And(^bits) }

// Failed notes, for who counts, that a completion which the poll hands out has failed.
// Poller's side.
func (s *State) Failed(status Status) {
	if n := len(s.Failures); n > 0 {
		s.Failures[min(uint(status), uint(n-1))]++
		s.Set(Look)
	}
}

// Dropped counts a completion that the program does not see; late says that its queue
// pair was closed. Of a queue that is closed nothing counts: its memory may be another's
// by now, and say anything. Poller's side.
func (s *State) Dropped(late bool) {
	switch {
	case s.Load()&Closed != 0:
	case late:
		s.Late.Add(1)
	default:
		s.Stray.Add(1)
	}
}
