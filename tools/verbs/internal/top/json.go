package top

import (
	"encoding/json"
	"io"
	"time"
)

// A Look is everything that one look at the machine saw. It is the JSON object
// of verbs top -json: keys stay, new ones may come. What is not known is null,
// and lists are never null. Counts may pass 2^53.
type Look struct {
	Time time.Time `json:"time"`

	// Seconds passed since the look before, 0 in the first one: then every
	// rate is null.
	Seconds float64 `json:"seconds"`

	// Took is how long the look itself took.
	Took float64 `json:"took_seconds"`

	// Levels are the sources, and why those that are not live are not.
	Levels []Level `json:"levels"`

	// Notes are sentences about what is missing and why.
	Notes []string `json:"notes"`

	Devices   []*Device  `json:"devices"`
	Processes []*Process `json:"processes"`

	// Calls are calls to uverbs since the tracer came; empty unless the
	// level is live.
	Calls []*Call `json:"calls"`
}

// A Level is one source of what a look shows: "netlink", or a level of package
// trace.
type Level struct {
	Name string `json:"name"`
	Live bool   `json:"live"`
	Why  string `json:"why"`
}

// A Device is one RDMA device.
type Device struct {
	Name     string `json:"name"`
	Index    uint32 `json:"index"`
	NodeType string `json:"node_type"`
	Protocol string `json:"protocol"` // "roce", "ib", "iw"; "" if unknown
	Firmware string `json:"fw_ver"`   // "" if there is none

	Ports    []*Port    `json:"ports"`
	Contexts []*Context `json:"contexts"`
	PDs      []*PD      `json:"pds"`
	CQs      []*CQ      `json:"cqs"`
	QPs      []*QP      `json:"qps"`
	MRs      []*MR      `json:"mrs"`
	SRQs     []*SRQ     `json:"srqs"`
	CMIDs    []*CMID    `json:"cm_ids"`

	// Missing are sentences about what this device or kernel did not tell.
	Missing []string `json:"missing"`

	qpsAt time.Time
}

// A Port is one port of a device.
type Port struct {
	Port      uint32 `json:"port"`
	State     string `json:"state"`
	PhysState string `json:"phys_state"`
	Netdev    string `json:"netdev"` // "" if there is none in this network namespace

	Counters []*Counter `json:"counters"` // by source and name

	number uint8 // of the state
	at     time.Time
}

// A Counter is one counter of a port.
type Counter struct {
	Name string `json:"name"`
	// Source is "hw" for the driver's counters (hw_counters in sysfs) and
	// "port" for those of InfiniBand's (counters in sysfs).
	Source string `json:"source"`
	Value  uint64 `json:"value"`
	// Rate is null in the first look of a port, and where the counter went
	// backwards.
	Rate *float64 `json:"per_s"`
}

// An Owner says whose an object is. Where all is null or "", the kernel does not
// say: the owner is of a PID namespace that this one does not see.
type Owner struct {
	PID     *uint32 `json:"pid"`     // the process
	Process string  `json:"process"` // its name, printable
	Thread  *uint32 `json:"thread"`  // the thread that made the object
	Kernel  string  `json:"kernel"`  // the kernel's module that owns the object
}

// A Context is an open device file with a verbs context.
type Context struct {
	ID uint32 `json:"ctxn"`
	Owner
}

// A PD is a protection domain.
type PD struct {
	ID      uint32  `json:"pdn"`
	Context *uint32 `json:"ctxn"` // null: the kernel's
	Users   uint64  `json:"users"`
	Owner
}

// A CQ is a completion queue. What follows Adaptive is not in netlink: it is
// null unless the tracer's level that says it is live.
type CQ struct {
	ID       uint32  `json:"cqn"`
	Context  *uint32 `json:"ctxn"` // null: the kernel's
	Depth    uint32  `json:"depth"`
	Users    uint64  `json:"users"`
	Adaptive bool    `json:"adaptive_moderation"`
	Owner

	Vector     *uint32  `json:"vector"`
	Pending    *bool    `json:"pending"`       // a completion event waits to be read
	EventsRead *uint32  `json:"events_read"`   // modulo 2^32
	AsyncRead  *uint32  `json:"async_read"`    // modulo 2^32
	EventRate  *float64 `json:"events_per_s"`  // events read
	Slots      *uint32  `json:"slots"`         // of soft-RoCE's ring
	Occupied   *uint32  `json:"occupied"`      // completions that nobody has polled
	HighWater  *uint32  `json:"high_water"`    // the most that was seen
	Exact      *bool    `json:"high_exact"`    // false: the most at the moments of looks
	Armed      *string  `json:"armed"`         // "no", "solicited", "next"
	CQERate    *float64 `json:"cqes_per_s"`    // completions that came
	AtLeast    *bool    `json:"cqes_at_least"` // true: seen by the ring's index, which may have passed the whole ring unseen

	Errors    *uint64           `json:"errors"` // CQ errors (overruns) since the tracer came
	ErrorRate *float64          `json:"errors_per_s"`
	CQEs      *uint64           `json:"cqes"`    // since the tracer came, dropped ones too
	Dropped   *uint64           `json:"dropped"` // those that found no room
	Failed    map[string]uint64 `json:"failed"`  // those with a status that is not success, by status; null if unknown
	Events    *uint64           `json:"events"`  // events made since the tracer came
	Wake      *Wake             `json:"wake"`    // between the two looks; null where none was measured

	seen *seenCQ
}

// A Wake is a distribution of the times from a completion event to the return
// of the read that fetched it. The quantiles are upper limits: times are counted
// in powers of two.
type Wake struct {
	N       uint64  `json:"n"`
	AvgUsec float64 `json:"avg_usec"`
	P50Usec float64 `json:"p50_usec"`
	P99Usec float64 `json:"p99_usec"`
	MaxUsec float64 `json:"max_usec"` // since the tracer came
}

// A QP is a queue pair. Netlink does not say which completion queues it uses.
type QP struct {
	Num     uint32  `json:"qpn"`
	Type    string  `json:"type"`
	Subtype string  `json:"subtype"` // of the driver
	State   string  `json:"state"`
	Port    *uint32 `json:"port"`
	Remote  *uint32 `json:"remote_qpn"` // null: not connected
	PD      *uint32 `json:"pdn"`        // null: the kernel's
	SendPSN uint32  `json:"sq_psn"`
	RecvPSN uint32  `json:"rq_psn"`
	Owner

	// SendRate and RecvRate are packets a second by the sequence numbers, of
	// connected queue pairs. They are null where one went backwards, as it
	// does when packets are sent again.
	SendRate *float64 `json:"sq_packets_per_s"`
	RecvRate *float64 `json:"rq_packets_per_s"`

	connected bool
}

// An MR is a memory region.
type MR struct {
	ID     uint32  `json:"mrn"`
	Length uint64  `json:"length"`
	PD     *uint32 `json:"pdn"`  // null: the kernel's
	LKey   *string `json:"lkey"` // null without CAP_NET_ADMIN
	RKey   *string `json:"rkey"`
	Owner
}

// An SRQ is a shared receive queue.
type SRQ struct {
	ID   uint32      `json:"srqn"`
	Type string      `json:"type"`
	PD   uint32      `json:"pdn"`
	CQ   *uint32     `json:"cqn"`  // null: the type has none of its own
	QPs  [][2]uint32 `json:"qpns"` // first and last of each run
	Owner
}

// A CMID is an identifier of the connection manager.
type CMID struct {
	ID        uint32  `json:"cm_idn"`
	State     string  `json:"state"`
	PortSpace string  `json:"ps"`
	Local     string  `json:"local"` // "" if there is none
	Peer      string  `json:"peer"`  // "" if there is none
	QP        *uint32 `json:"qpn"`
	Port      *uint32 `json:"port"`
	Owner
}

// A Process is what one process, or one module of the kernel, has on all
// devices. One without PID and Kernel stands for all that cannot be seen.
type Process struct {
	PID    *uint32 `json:"pid"`
	Name   string  `json:"name"`
	Kernel string  `json:"kernel"`

	Devices  []string `json:"devices"`
	Contexts int      `json:"contexts"`
	PDs      int      `json:"pds"`
	CQs      int      `json:"cqs"`
	QPs      int      `json:"qps"`
	MRs      int      `json:"mrs"`
	SRQs     int      `json:"srqs"`
	CMIDs    int      `json:"cm_ids"`

	// Bytes is the sum of the lengths of the regions. They may overlap.
	Bytes uint64 `json:"mr_bytes"`

	// The rates are sums over the process's objects of those that are known.
	SendRate  *float64 `json:"sq_packets_per_s"`
	RecvRate  *float64 `json:"rq_packets_per_s"`
	EventRate *float64 `json:"events_per_s"`
	CQERate   *float64 `json:"cqes_per_s"`
	AtLeast   *bool    `json:"cqes_at_least"` // true: the rate of one of them is a lower limit
}

// A Call counts the calls of one process to one method of uverbs.
type Call struct {
	// PID is the process in the kernel's first PID namespace; in another one
	// it is not the number that /proc has.
	PID     uint32  `json:"pid"`
	Process string  `json:"process"` // the thread that called first
	Via     string  `json:"via"`     // "ioctl", "invoke-write", "write"
	Name    string  `json:"name"`
	Count   uint64  `json:"count"`
	Failed  uint64  `json:"failed"`
	AvgUsec float64 `json:"avg_usec"` // of all
	MaxUsec float64 `json:"max_usec"`

	Rate *float64 `json:"per_s"`

	seconds float64
	key     callKey
}

// WriteJSON writes a look as one line of JSON.
func WriteJSON(w io.Writer, l *Look) error {
	return json.NewEncoder(w).Encode(l)
}
