package selftest

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/uverbs"
)

// An Order is what one end is asked to do: the words between the two ends of a test,
// by a call where both are in this process, as a line of JSON where one is not. Do says
// which of the other fields mean something.
type Order struct {
	Do string `json:"do"`

	Make    *Spec            `json:"make,omitempty"`
	Peer    *uverbs.Endpoint `json:"peer,omitempty"`
	Region  *uverbs.Remote   `json:"region,omitempty"` // of the other end
	Options *Options         `json:"options,omitempty"`
	Work    []Work           `json:"work,omitempty"`
	Stream  *Stream          `json:"stream,omitempty"`

	// Off and Bytes are a piece of memory, Seed the pattern in it.
	Off   int    `json:"off,omitempty"`
	Bytes int    `json:"bytes,omitempty"`
	Seed  uint64 `json:"seed,omitempty"`
	// N is how many, Event a type of asynchronous events, Group a multicast address.
	N     int              `json:"n,omitempty"`
	Event uverbs.EventType `json:"event,omitempty"`
	Group string           `json:"group,omitempty"`
	// Patience is how long it may take, in seconds.
	Patience float64 `json:"patience"`
}

// The orders.
const (
	doMake       = "make"    // a device opened, and all that Spec says
	doConnect    = "connect" // the queue pair, or an address handle
	doPost       = "post"
	doTake       = "take" // completions
	doFill       = "fill"
	doCheck      = "check"
	doReady      = "ready" // for a stream: its receives are posted
	doStream     = "stream"
	doOpen       = "open window"
	doShut       = "close window"
	doState      = "state"
	doError      = "error" // the queue pair, to ERR
	doRecover    = "recover"
	doEvent      = "event"
	doLimit      = "limit" // of the SRQ
	doJoin       = "join"
	doCloseQueue = "close queue pair"
	doClose      = "close"
	doBye        = "bye" // the run is over
)

// Spec is what an end is made of.
type Spec struct {
	Type      uverbs.QPType `json:"type"`
	SendDepth int           `json:"send_depth"`
	RecvDepth int           `json:"recv_depth"`
	SGE       int           `json:"sge,omitempty"`
	Inline    int           `json:"inline,omitempty"`
	CQDepth   int           `json:"cq_depth,omitempty"` // 0: both depths
	SRQ       int           `json:"srq,omitempty"`      // its depth; 0: none
	Memory    int           `json:"memory,omitempty"`   // 0: memoryBytes
	Region    uverbs.Access `json:"region"`
	// Foreign registers a second region, over the second half of the memory, in another
	// protection domain: the queue pair may not use it.
	Foreign bool          `json:"foreign,omitempty"`
	Access  uverbs.Access `json:"access"` // of the peer, through the queue pair

	Events       bool `json:"events,omitempty"`
	Timestamps   bool `json:"timestamps,omitempty"`
	BigEntries   bool `json:"big_entries,omitempty"`
	Compress     bool `json:"compress,omitempty"`
	AllowOverrun bool `json:"allow_overrun,omitempty"`
}

// Options are those of the connection that tests choose.
type Options struct {
	AckTimeoutMS int `json:"ack_timeout_ms,omitempty"`
	Retries      int `json:"retries,omitempty"`
	RNRRetries   int `json:"rnr_retries,omitempty"`
}

// Work is one request, of either side.
type Work struct {
	Op     cq.Opcode    `json:"op"`
	ID     uint64       `json:"id"`
	Pieces []Piece      `json:"pieces,omitempty"`
	Flags  cq.SendFlags `json:"flags,omitempty"`
	Imm    uint32       `json:"imm,omitempty"`
	// Inline carries the pieces in the request.
	Inline bool `json:"inline,omitempty"`
	// Foreign takes the pieces from the second region.
	Foreign bool `json:"foreign,omitempty"`
	// To is where in the other end's memory, WrongKey that the key is to be wrong, Beyond
	// how many bytes longer the region is said to be than it is.
	To       uint64 `json:"to,omitempty"`
	WrongKey bool   `json:"wrong_key,omitempty"`
	Beyond   uint64 `json:"beyond,omitempty"`
	// Window names the other end's window in the place of its region.
	Window *uverbs.Remote `json:"window,omitempty"`
	// A and B are the operands of atomics.
	A uint64 `json:"a,omitempty"`
	B uint64 `json:"b,omitempty"`
	// Group sends to the multicast group, WrongQKey with another Q_Key.
	Group     bool `json:"group,omitempty"`
	WrongQKey bool `json:"wrong_qkey,omitempty"`
}

// Piece is a piece of an end's memory.
type Piece struct {
	Off int `json:"off"`
	N   int `json:"n"`
}

// Stream is a row of numbered messages, with credits in the other direction.
type Stream struct {
	Messages int  `json:"messages"`
	Bytes    int  `json:"bytes"` // of each, at most; the number takes 8
	Send     bool `json:"send"`  // this end sends them
	// Inline carries messages in the request, where they fit; Vary makes them
	// of different lengths; Quiet asks for the completion of one in so many; Ops
	// goes round these operations.
	Inline bool        `json:"inline,omitempty"`
	Vary   bool        `json:"vary,omitempty"`
	Quiet  int         `json:"quiet,omitempty"`
	Ops    []cq.Opcode `json:"ops,omitempty"`
	// Credit is how many messages may be under way.
	Credit int `json:"credit"`
	// Stall is how long it may stand still, in seconds.
	Stall float64 `json:"stall"`
}

// A Done is a completion, as it goes between the ends.
type Done struct {
	ID          uint64    `json:"id"`
	Side        cq.Side   `json:"side"`
	Op          cq.Opcode `json:"op"`
	Status      cq.Status `json:"status"`
	VendorErr   uint32    `json:"vendor_err,omitempty"`
	Bytes       uint32    `json:"bytes,omitempty"`
	Imm         *uint32   `json:"imm,omitempty"`
	Invalidated *uint32   `json:"invalidated,omitempty"`
	SrcQPN      uint32    `json:"src_qpn,omitempty"`
	GRH         bool      `json:"grh,omitempty"`
	Stamp       uint64    `json:"stamp,omitempty"`
	Synthetic   bool      `json:"synthetic,omitempty"`
}

func doneOf(w *uverbs.WC) Done {
	d := Done{ID: w.ID, Side: w.Side, Op: w.Opcode, Status: w.Status, VendorErr: w.VendorErr, Bytes: w.Bytes, SrcQPN: w.SrcQPN, Stamp: w.Timestamp,
		GRH: w.Flags&cq.FlagGRH != 0, Synthetic: w.Flags&cq.FlagSynthetic != 0}
	if v, ok := w.Imm(); ok {
		d.Imm = &v
	}
	if v, ok := w.InvalidatedRKey(); ok {
		d.Invalidated = &v
	}
	return d
}

// String says what it is in few words.
func (d Done) String() string {
	s := fmt.Sprintf("%v of request %d", d.Side, d.ID)
	if d.Status != cq.StatusSuccess {
		s += fmt.Sprintf(" ended with %v (status %d, vendor error %#x)", d.Status, uint32(d.Status), d.VendorErr)
	} else {
		s += fmt.Sprintf(" succeeded as %v of %d bytes", d.Op, d.Bytes)
	}
	return s
}

// Answer is what came of an order.
type Answer struct {
	// Error says what went wrong; Lacks, that the device or kernel cannot do it.
	Error string `json:"error,omitempty"`
	Lacks bool   `json:"lacks,omitempty"`

	Endpoint *uverbs.Endpoint `json:"endpoint,omitempty"`
	Region   *uverbs.Remote   `json:"region,omitempty"` // also a window
	Limits   *uverbs.QPLimits `json:"limits,omitempty"`
	Device   *Device          `json:"device,omitempty"`
	Done     []Done           `json:"done,omitempty"`
	State    uverbs.QPState   `json:"state,omitempty"`
	Strays   uint64           `json:"strays,omitempty"`
}

// Device is what an end says of its device.
type Device struct {
	Driver     string            `json:"driver"`
	Kernel     string            `json:"kernel"`
	Caps       uverbs.DeviceCaps `json:"caps"`
	Atomic     uverbs.AtomicCap  `json:"atomic"`
	MaxSRQ     int               `json:"max_srq"`
	MaxGroups  int               `json:"max_groups"`
	MaxMessage uint32            `json:"max_message"`
	Datagram   int               `json:"datagram"`
	Roce       bool              `json:"roce"`
}

// orderError is the error of an order, by the words of the end that carried it out.
type orderError struct {
	text  string
	lacks bool
}

func (e *orderError) Error() string { return e.text }

// Unwrap makes errors.Is find what is not supported.
func (e *orderError) Unwrap() error {
	if e.lacks {
		return uverbs.ErrNotSupported
	}
	return nil
}

// err is the error of an answer.
func (a *Answer) err() error {
	if a.Error == "" {
		return nil
	}
	return &orderError{a.Error, a.Lacks}
}

// lacking says what an order asked for and the answer does not have: the other end may be
// any program.
func (a *Answer) lacking(o *Order) error {
	missing := false
	switch o.Do {
	case doMake:
		missing = a.Endpoint == nil || a.Region == nil || a.Limits == nil || a.Device == nil
	case doRecover:
		missing = a.Endpoint == nil
	case doOpen:
		missing = a.Region == nil
	case doTake:
		missing = len(a.Done) != o.N
	}
	if missing {
		return fmt.Errorf("its answer to %q lacks what was asked for", o.Do)
	}
	return nil
}

// failed is the answer for an error.
func failed(err error) *Answer {
	return &Answer{Error: err.Error(), Lacks: errors.Is(err, uverbs.ErrNotSupported)}
}

// What orders are taken: they may come from anybody.
const (
	maxDepth    = 1 << 14
	maxMemory   = 64 << 20
	maxMessages = 1 << 22
	maxPieces   = 64
	maxWork     = 4096
	maxPatience = 600 // seconds
	memoryBytes = 1 << 20
)

// check says what of an order cannot be. Which pieces there are, memory and library
// know.
func (o *Order) check() error {
	within := func(what string, n, low, high int) error {
		if n < low || n > high {
			return fmt.Errorf("%s %d: %d to %d are taken", what, n, low, high)
		}
		return nil
	}
	errs := []error{within("offset", o.Off, 0, maxMemory), within("length", o.Bytes, 0, maxMemory), within("number", o.N, 0, maxMessages), within("requests", len(o.Work), 0, maxWork)}
	if !(o.Patience > 0 && o.Patience <= maxPatience) {
		errs = append(errs, fmt.Errorf("patience of %v seconds: up to %d are taken", o.Patience, maxPatience))
	}
	for i := range o.Work {
		errs = append(errs, within("pieces", len(o.Work[i].Pieces), 0, maxPieces))
		for _, p := range o.Work[i].Pieces {
			errs = append(errs, within("offset", p.Off, 0, maxMemory), within("length", p.N, 0, maxMemory))
		}
	}
	if m := o.Make; m != nil {
		errs = append(errs, within("send depth", m.SendDepth, 1, maxDepth), within("receive depth", m.RecvDepth, 1, maxDepth), within("pieces", m.SGE, 0, maxPieces),
			within("inline data", m.Inline, 0, 4096), within("CQ depth", m.CQDepth, 0, 2*maxDepth), within("SRQ depth", m.SRQ, 0, maxDepth), within("memory", m.Memory, 0, maxMemory))
	}
	if s := o.Stream; s != nil {
		errs = append(errs, within("messages", s.Messages, 1, maxMessages), within("message length", s.Bytes, numberBytes, 1<<16), within("credit", s.Credit, 1, maxDepth), within("quiet", s.Quiet, 0, maxDepth), within("operations", len(s.Ops), 0, 8))
		if !(s.Stall > 0 && s.Stall <= maxPatience) {
			errs = append(errs, fmt.Errorf("a stall of %v seconds: up to %d are taken", s.Stall, maxPatience))
		}
	}
	return errors.Join(errs...)
}
