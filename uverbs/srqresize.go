package uverbs

import (
	"fmt"
	"os"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/cq"
)

// Resize changes how many receives may be outstanding, to depth. Receives that were
// posted stay posted, and those that are staged stay staged. It is for the goroutine
// that posts, as the methods of RecvQueue are; queue pairs go on receiving meanwhile.
//
// It fails with ErrQueueFull when more than depth receives are outstanding or
// staged, with ErrCQFull when a CQ on which receives complete has no room for so
// many, and with ErrInvalid below the limit that is set. Then nothing has changed.
// If the kernel fails in the middle the queue takes no more receives, which every
// Flush says: close it.
//
// On soft-RoCE it needs a kernel whose rings can be exchanged without harm: Linux
// 6.0.3, or one before 5.14. ConnectX cannot: ErrNotSupported.
func (s *SRQ) Resize(depth int) error {
	const op = "resize SRQ"
	d := s.dev
	if most := d.maxSRQDepth(); depth < 1 || depth > most {
		return invalid("%s: depth %d: %s allows 1 to %d", op, depth, d.info.Name, most)
	}
	if d.attr.Caps&DeviceCaps(abi.IB_UVERBS_DEVICE_SRQ_RESIZE) == 0 {
		return fmt.Errorf("goverbs: %s: %s: %w by this device", d.info.Name, op, ErrNotSupported)
	}
	if err := s.half.resizable(); err != nil {
		return err
	}
	s.calls.Lock()
	defer s.calls.Unlock()
	if s.closing.Load() {
		return fmt.Errorf("goverbs: %s: %s: %w", d.info.Name, op, os.ErrClosed)
	}
	if s.lost != nil {
		return fmt.Errorf("goverbs: %s: %s: %w", d.info.Name, op, s.lost)
	}
	// No poller can make this more, and no one else posts: the kernel finds no
	// more in its ring. If it did, soft-RoCE of some versions would free the ring
	// and use it with the next message.
	if used := s.shared.Depth() - s.shared.Room(); depth < used {
		return fmt.Errorf("goverbs: %s: %s to %d: %w: %s outstanding or staged", d.info.Name, op, depth, ErrQueueFull, plural(used, "receive"))
	}
	undo, err := s.claim(op, depth)
	if err != nil {
		return err
	}
	if err := s.half.resize(op, depth); err != nil {
		undo()
		return err
	}
	s.shared.Resize(uint32(depth)) // it has just been seen to be possible
	s.settle(depth)
	return nil
}

// maxSRQDepth is the greatest depth that an SRQ can have.
func (d *Device) maxSRQDepth() int { return min(d.attr.MaxSRQWR, cq.MaxSharedDepth) }

// lose marks the queue as one that has no ring any more.
func (s *SRQ) lose(err error) error {
	s.lost = fmt.Errorf("its ring was lost in a resize, close it: %w", err)
	return err
}

// claim makes the queue count with a greater depth against the CQs on which its
// receives complete. undo takes that back.
func (s *SRQ) claim(op string, depth int) (undo func(), err error) {
	d := s.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	was := s.claimed
	if depth <= was {
		return func() {}, nil // settle gives back what is too much
	}
	for q := range s.claims {
		if q.committed+depth-was > q.depth() {
			return nil, fmt.Errorf("goverbs: %s: %s to %d: %w: that is %d completions more, %d of a CQ's %d are taken: resize the CQ first",
				d.info.Name, op, depth, ErrCQFull, depth-was, q.committed, q.depth())
		}
	}
	s.setClaim(depth)
	return func() { s.settle(was) }, nil
}

// settle makes the queue count with a depth against the CQs.
func (s *SRQ) settle(depth int) {
	s.dev.mu.Lock()
	defer s.dev.mu.Unlock()
	s.setClaim(depth)
}

// setClaim is settle with the device's mu held.
func (s *SRQ) setClaim(depth int) {
	for q := range s.claims {
		q.committed += depth - s.claimed
	}
	s.claimed = depth
}
