package uverbs

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// Channel is a completion channel that several completion queues report their
// events on: one descriptor for many queues. Each queue is still waited on by
// its own goroutine; whoever reads an event of another queue hands it on. Its
// methods may be called from any goroutine.
type Channel struct {
	object
	file kernel.EventFile

	mu     sync.Mutex // one reader at a time; guards all below
	record [8]byte
	queues map[uint64]*CQ // by user handle

	// The queues that have a waiter. It comes before their waiterMu, and
	// nobody waits for anything with it held.
	waited struct {
		sync.Mutex
		queues []*CQ
	}
}

// NewChannel makes a completion channel for CQOptions.Channel.
func (d *Device) NewChannel() (*Channel, error) {
	done, err := d.making(kindChannel)
	if err != nil {
		return nil, err
	}
	defer done()
	c, err := d.newChannel()
	if err != nil {
		return nil, err
	}
	c.letGo = func() { c.file.Close() }
	if err := d.hold(c); err != nil {
		c.file.Close()
		return nil, err
	}
	return c, nil
}

// newChannel makes a completion channel that is not entered into the device. It
// is a file of its own that has to be closed, whatever becomes of the device
// file.
func (d *Device) newChannel() (*Channel, error) {
	const op = "create completion channel"
	in, out := new(abi.UverbsCreateCompChannel), new(abi.UverbsCreateCompChannelResp)
	if err := d.call(op, newCommand(d.driver, abi.IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, in.Bytes(), out.Bytes())); err != nil {
		return nil, err
	}
	f, err := d.adopt(op, int(int32(out.FD)))
	if err != nil {
		return nil, err
	}
	c := &Channel{object: object{dev: d, kind: kindChannel, id: d.nextID()}, file: f, queues: make(map[uint64]*CQ)}
	f.Notify(c.wake)
	return c, nil
}

// wake makes all waiters look: there may be an event.
func (c *Channel) wake() {
	c.waited.Lock()
	defer c.waited.Unlock()
	for _, q := range c.waited.queues {
		q.wakeWaiter()
	}
}

// attach says that a queue has a waiter, detach that it has none any more.
func (c *Channel) attach(q *CQ) {
	c.waited.Lock()
	defer c.waited.Unlock()
	c.waited.queues = append(c.waited.queues, q)
}

func (c *Channel) detach(q *CQ) {
	c.waited.Lock()
	defer c.waited.Unlock()
	c.waited.queues = slices.DeleteFunc(c.waited.queues, func(o *CQ) bool { return o == q })
}

// adopt takes over an event descriptor that the kernel returned.
func (d *Device) adopt(op string, fd int) (kernel.EventFile, error) {
	f, err := d.file.Events(fd)
	if err != nil {
		d.file.CloseFD(fd)
		return nil, &Error{Op: op, Device: d.info.Name, Err: err}
	}
	return f, nil
}

// join lets events of q be recognised.
func (c *Channel) join(q *CQ) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queues[q.id] = q
}

// leave forgets a queue: its events, if some are left, are nobody's.
func (c *Channel) leave(q *CQ) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.queues, q.id)
}

// take consumes one event of q if there is one. Events of other queues that come
// first are handed to those, and their waiters woken.
func (c *Channel) take(q *CQ) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if q.pending > 0 {
			q.pending--
			return true, nil
		}
		n, err := c.file.Read(c.record[:])
		switch {
		case isErrno(err, syscall.EAGAIN):
			return false, nil
		case errors.Is(err, os.ErrClosed):
			return false, q.closedError()
		case err != nil:
			if err = q.heard(kernelError(err)); err == nil {
				return false, nil
			}
			return false, &Error{Op: "take CQ event", Device: c.dev.info.Name, Err: err}
		case n != len(c.record):
			return false, &Error{Op: "take CQ event", Device: c.dev.info.Name, Err: fmt.Errorf("record of %d bytes, want %d", n, len(c.record))}
		}
		owner := c.queues[native.Uint64(c.record[:])]
		if owner == nil {
			// Of a queue that was closed in the meantime; or invented.
			continue
		}
		owner.pending++
		owner.half.eventTaken()
		if owner != q {
			// Whom this wakes may want the event at once.
			c.mu.Unlock()
			owner.wakeWaiter()
			c.mu.Lock()
		}
	}
}

// Close closes the channel. It returns ErrInUse while completion queues use it.
func (c *Channel) Close() error {
	if err := c.retire(); err != nil {
		return err
	}
	defer c.release()
	if err := c.file.Close(); !c.dev.lost.Load() {
		return err
	}
	return nil
}
