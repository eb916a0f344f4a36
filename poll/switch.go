package poll

import (
	"errors"
	"fmt"
	"os"
)

// SetStrategy makes the waiter wait in another way from now on. Any goroutine may call
// it, at any time: a Wait that is under way goes on in the new way, whether it sleeps or
// spins, and no completion is lost or waits for it.
//
// It fails as NewWaiter does, for example where a strategy that sleeps meets a queue
// without events, and with os.ErrClosed after Close. The old strategy then stays.
func (w *Waiter) SetStrategy(s Strategy) error {
	if s == nil {
		return errors.New("poll: SetStrategy without a strategy: choose poll.Adaptive, poll.Event or poll.Busy")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.word.Load()&closed != 0 {
		return fmt.Errorf("poll: set strategy: %w", os.ErrClosed)
	}
	var coming waiting
	if s != w.strategy {
		if s == w.chosen {
			return nil
		}
		// What the old strategy has of queues and processors it has until
		// the poller leaves it.
		var err error
		if coming, err = s.newWait(w); err != nil {
			return err
		}
	}
	w.forget()
	if coming != nil {
		w.coming, w.chosen = coming, s
		if w.turn == nil { // the poller reads it without a lock, after turned
			w.turn = w.takeTurn
		}
		w.word.Or(turned)
		if w.bells != nil {
			w.bells.wake()
		}
	}
	w.settle()
	return nil
}

// forget lets go of a strategy that the poller has not taken into use. w.mu is held.
func (w *Waiter) forget() {
	if w.coming == nil {
		return
	}
	w.coming.close() // nobody sleeps there yet, and its descriptors are gone in any case
	w.coming, w.chosen = nil, nil
	w.word.And(^turned)
}

// takeTurn lets the poller go on with the strategy that SetStrategy left, unless it was
// forgotten again. Over, it is Close that calls it, with w.mu held.
func (w *Waiter) takeTurn(over bool) {
	if over {
		w.forget()
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.coming == nil {
		return
	}
	old := w.how
	w.how, w.strategy = w.coming, w.chosen
	w.coming, w.chosen = nil, nil
	w.word.And(^turned)
	if v, sleeps := w.how.(sleeper); sleeps {
		v.begin()
		// What woke the old one from now on may have been meant for this
		// one: an event that nobody has taken.
		w.bells.wake()
	}
	old.close() // as in forget
	w.settle()
}

// sleeper is a strategy that the bells wake.
type sleeper interface{ begin() }

// settle takes the bells off the queues if nobody needs them. w.mu is held.
func (w *Waiter) settle() {
	_, one := w.how.(sleeper)
	_, other := w.coming.(sleeper)
	if !one && !other && w.bells != nil {
		w.bells.detach()
		w.bells = nil
	}
}
