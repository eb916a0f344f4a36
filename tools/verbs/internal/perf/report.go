package perf

import (
	"encoding/json"
	"io"
)

// Report is one measurement: one test with messages of one size, as one side saw it. Its
// JSON keys are for programs to rely on.
type Report struct {
	Test       string `json:"test"`      // "send_bw", ..., "atomic_lat"
	Role       string `json:"role"`      // "client" or "server"; "both" where one process is
	Transport  string `json:"transport"` // "RC", "UC" or "UD"
	Device     string `json:"device"`
	PeerDevice string `json:"peer_device"`

	Bytes       int   `json:"bytes"`      // of a message
	Iterations  int64 `json:"iterations"` // messages that were measured, of all queue pairs; round trips of a latency
	QPs         int   `json:"qps"`
	PostList    int   `json:"post_list"`    // requests behind one doorbell
	SignalEvery int   `json:"signal_every"` // requests for one completion
	SendDepth   int   `json:"send_depth"`
	RecvDepth   int   `json:"recv_depth"` // 0: nothing is received
	Inline      int   `json:"inline"`     // longest message that goes in the request
	MTU         int   `json:"mtu"`
	ReadDepth   int   `json:"read_depth"` // reads and atomics under way on a queue pair; 0: there are none

	Bidirectional bool   `json:"bidirectional"` // both sides send; the figures count both
	Atomic        string `json:"atomic"`        // "FETCH_AND_ADD", "CMP_AND_SWAP", or "" for tests of other kinds
	Wait          string `json:"wait"`          // "busy", "event" or "adaptive"

	// Seconds is how long it took. Partial is whether it was ended before its time.
	Seconds float64 `json:"seconds"`
	Partial bool    `json:"partial"`

	BandwidthMBps     float64 `json:"bandwidth_mb_s"`      // 10^6 bytes a second
	PeakBandwidthMBps float64 `json:"peak_bandwidth_mb_s"` // that of the best stretch; 0 where it was not looked for
	MessagesPerSec    float64 `json:"messages_per_s"`      // round trips, where the sides send by turns
	// Lost is how many messages were sent and did not arrive: of send_bw over UC or UD,
	// where it was not ended before its time.
	Lost int64 `json:"lost"`

	// Latency and Histogram are null for tests of bandwidth, and CPU where the
	// system does not say.
	Latency   *Latency `json:"latency_usec"`
	Histogram []Bucket `json:"histogram"`
	CPU       *CPU     `json:"cpu"`

	times *times // that Latency is of, where this side has taken them
	parts int    // of a time that make one latency
}

// Latency is how long messages took, in microseconds: half a round trip for sends and
// writes, as perftest has it, and the whole operation for reads and atomics.
type Latency struct {
	N       int64   `json:"n"`
	Min     float64 `json:"min"`
	Max     float64 `json:"max"`
	Typical float64 `json:"typical"` // the median
	Avg     float64 `json:"avg"`
	Stdev   float64 `json:"stdev"`
	P99     float64 `json:"p99"`
	P999    float64 `json:"p999"`
}

// Bucket is how many latencies are at most Usec, and more than that of the bucket before.
type Bucket struct {
	Usec  float64 `json:"usec"`
	Count int64   `json:"count"`
}

// CPU is the processor time of this process during the measurement. What the kernel does
// in interrupts and workers of its own is not in it.
type CPU struct {
	UserSec        float64 `json:"user_sec"`
	SystemSec      float64 `json:"system_sec"`
	NsecPerMessage float64 `json:"nsec_per_message"` // of both together, by the messages that this side sent or received
}

// WriteJSON writes the report as one JSON object on one line.
func (r *Report) WriteJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }
