package uverbs

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// String says it in words, a line for each thing.
func (e *Explanation) String() string {
	var b strings.Builder
	id := idText(e.WC.ID)
	fmt.Fprintf(&b, "%s: %v request %s on ", e.Device, e.WC.Side, id)
	if e.Type == 0 {
		fmt.Fprintf(&b, "QP %d", e.WC.QPN)
	} else {
		fmt.Fprintf(&b, "%v QP %d in %v", e.Type, e.WC.QPN, e.State)
	}
	if e.PeerQPN != 0 || !e.Peer.IsZero() {
		fmt.Fprintf(&b, ", connected to QP %d at %v", e.PeerQPN, e.Peer)
	}
	fmt.Fprintf(&b, ": %s\n", e.WC.Status.Describe())
	switch {
	case e.Vendor != "":
		fmt.Fprintf(&b, "  the device's code: %#x: %s\n", e.WC.VendorErr, e.Vendor)
	case e.WC.VendorErr != 0:
		fmt.Fprintf(&b, "  the device's code: %#x\n", e.WC.VendorErr)
	}
	if e.WC.Flags&FlagSynthetic != 0 {
		b.WriteString("  the device has not said so: it was reset or is gone, and the library ended the request\n")
	}
	if e.Request != nil {
		fmt.Fprintf(&b, "  the request: %v\n", e.Request)
	}
	fmt.Fprintf(&b, "  fault of: %v\n  what helps: %v\n", e.Fault, e.Remedy)
	switch {
	case e.IsFirst:
		fmt.Fprintf(&b, "  it is the first failure of the queue pair, polled %s\n", e.age())
	case e.First != nil:
		w := e.First
		fmt.Fprintf(&b, "  the first failure was that of %v request %s, polled %s: %s\n", w.Side, idText(w.ID), e.age(), w.Status.Describe())
	case e.Cause != nil:
		fmt.Fprintf(&b, "  no request failed by itself: %v\n", e.Cause)
	case e.WC.Status == StatusFlushed:
		b.WriteString("  nothing failed before that is known: the program took the queue pair down, or the device has told nobody why\n")
	}
	if len(e.Before) > 0 {
		b.WriteString("  posted before it, the latest first:\n")
		for i := len(e.Before) - 1; i >= 0; i-- {
			fmt.Fprintf(&b, "    %s: %v\n", idText(e.Before[i].ID), &e.Before[i])
		}
	}
	for _, u := range e.Unknown {
		fmt.Fprintf(&b, "  not known: %s\n", u)
	}
	return b.String()
}

// age is how long after its beginning the queue pair failed.
func (e *Explanation) age() string {
	return fmt.Sprintf("%v after the queue pair was made or reset", max(0, e.FailedAt.Sub(e.Began)).Round(time.Microsecond))
}

// idText is an id as errors print it.
func idText(id uint64) string {
	if id > math.MaxUint32 { // made of two numbers, most likely
		return fmt.Sprintf("%#x", id)
	}
	return fmt.Sprint(id)
}

// String says what the request was, on one line.
func (r *PastRequest) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v of %d bytes", r.Op, r.Bytes)
	if r.Unsignaled {
		b.WriteString(", unsignaled")
	}
	fmt.Fprintf(&b, ", %v", r.End)
	if r.Inline {
		b.WriteString("; its data in the request")
	}
	for i := range r.Spans {
		fmt.Fprintf(&b, "; %v", &r.Spans[i])
	}
	if r.Remote {
		fmt.Fprintf(&b, "; the peer's memory at %#x, rkey %#x", r.RemoteAddr, r.RKey)
	}
	if r.DestQPN != 0 {
		fmt.Fprintf(&b, "; to QP %d", r.DestQPN)
	}
	return b.String()
}

// String names the memory, and says what is wrong with it, if it is.
func (s *PastSpan) String() string {
	text := fmt.Sprintf("%d bytes of local memory at %#x, lkey %#x", s.Length, s.Addr, s.LKey)
	if s.Region == nil {
		return text + " (of no open memory region)"
	}
	r := s.Region.now.Load()
	if off := s.Addr - r.addr; s.Addr < r.addr || off > uint64(r.length) || uint64(s.Length) > uint64(r.length)-off {
		return text + fmt.Sprintf(" (outside of its memory region, %d bytes from %#x on)", r.length, r.addr)
	}
	return text
}
