package selftest

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/uverbs"
)

// recordHeader is what a file says of itself.
const recordHeader = "Written by verbs selftest -record. It has, of each test, work requests and completions as they stood in memory. " +
	"It has no data of messages and no operands of atomics: these bytes are zeros. Keys are numbered in the order in which they appeared, " +
	"of memory addresses the offset in a page is left, and GIDs, GUIDs, LIDs, MAC and IP addresses, VLANs, host names and serial numbers are left out."

// Record is the file of -record. Its keys stay.
type Record struct {
	About  string `json:"about"`
	Format int    `json:"format"`
	*Report
	Limits *About         `json:"limits"`
	Tests  []RecordedTest `json:"tests"`
}

// About is what a device says of itself, without its names.
type About struct {
	Attr  uverbs.DeviceAttr `json:"attr"`
	Ports []uverbs.PortAttr `json:"ports"`
	Board string            `json:"board,omitempty"` // the kind of board, not which
}

// Describe asks a device.
func Describe(d *uverbs.Device) *About {
	a := &About{Attr: d.Attr(), Board: boardID(d.Name())}
	a.Attr.NodeGUID, a.Attr.SysImageGUID = 0, 0
	for n := 1; n <= a.Attr.Ports; n++ {
		p, err := d.PortAttr(n)
		if err != nil {
			continue
		}
		p.LID, p.SMLID = 0, 0
		a.Ports = append(a.Ports, p)
	}
	return a
}

// RecordedTest is what was recorded of a test.
type RecordedTest struct {
	Test        string     `json:"test"`
	Completions []Recorded `json:"completions"`
	// Left is how many completions more there were.
	Left int `json:"left,omitempty"`
}

// Recorded is a completion with its request. The bytes are in rows of 16, as hexadecimal
// numbers; of a format that is not known here there are none.
type Recorded struct {
	End       string   `json:"end"`
	Transport string   `json:"transport"`
	WC        Done     `json:"wc"`
	Layout    string   `json:"layout"` // whose: mlx5 (linux/mlx5/device.h, qp.h) or rxe (rdma/rdma_user_rxe.h)
	CQE       []string `json:"cqe,omitempty"`
	WQE       []string `json:"wqe,omitempty"`
}

// recordedOK and recordedFailed are how many completions of a kind are kept of a test.
const (
	recordedOK     = 4
	recordedFailed = 24
)

// recorder keeps completions. Both ends use it, and perhaps one of a test that hangs.
type recorder struct {
	mu    sync.Mutex
	tests []*RecordedTest
	seen  map[recordedKind]int
	mask  *mask
	bare  bool // nothing is masked: of tests
}

// recordedKind are completions that are alike.
type recordedKind struct {
	test, end string
	side      cq.Side
	op        cq.Opcode
	status    cq.Status
}

func newRecorder() *recorder {
	return &recorder{seen: map[recordedKind]int{}, mask: newMask()}
}

// completion records one that Poll has just returned.
func (r *recorder) completion(test string, e *end, w *uverbs.WC) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var t *RecordedTest
	for _, have := range r.tests {
		if have.Test == test {
			t = have
		}
	}
	if t == nil {
		t = &RecordedTest{Test: test}
		r.tests = append(r.tests, t)
	}
	kind := recordedKind{test, e.name, w.Side, w.Opcode, w.Status}
	r.seen[kind]++
	most := recordedOK
	if w.Status != cq.StatusSuccess {
		most = recordedFailed
	}
	if r.seen[kind] > most {
		t.Left++
		return
	}
	raw := e.cq.Raw(w)
	c := Recorded{End: e.name, Transport: e.spec.Type.String(), WC: doneOf(w)}
	if key := c.WC.Invalidated; key != nil {
		n := r.mask.key(*key)
		c.WC.Invalidated = &n
	}
	switch driver := e.dev.Info().Driver; {
	case r.bare:
		c.CQE, c.WQE = rows(raw.CQE), rows(raw.WQE)
	case driver == uverbs.DriverMlx5:
		c.Layout = "mlx5"
		c.CQE = rows(r.mask.mlx5CQE(raw.CQE))
		if w.Side == cq.SendSide {
			c.WQE = rows(r.mask.mlx5Send(raw.WQE, e.spec.Type == uverbs.UD))
		} else {
			c.WQE = rows(r.mask.mlx5Recv(raw.WQE))
		}
	case driver == uverbs.DriverRXE:
		c.Layout = "rxe"
		c.CQE = rows(r.mask.rxeCQE(raw.CQE))
		if w.Side == cq.SendSide {
			c.WQE = rows(r.mask.rxeSend(raw.WQE))
		} else {
			c.WQE = rows(r.mask.rxeRecv(raw.WQE))
		}
	}
	t.Completions = append(t.Completions, c)
}

// rows prints bytes.
func rows(b []byte) []string {
	var all []string
	for len(b) > 0 {
		n := min(len(b), 16)
		all = append(all, fmt.Sprintf("% x", b[:n]))
		b = b[n:]
	}
	return all
}

// Record is the file of a run that was recorded. What the rows say may name addresses:
// they are taken out.
func (r *Result) Record(report *Report, about *About) *Record {
	out := &Record{About: recordHeader, Format: 1, Limits: about}
	clean := *report
	names := newNames(report.Peer)
	if clean.Peer != "" {
		clean.Peer = "another machine"
	}
	clean.Device = names.scrub(clean.Device)
	clean.Rows = append([]Row(nil), report.Rows...)
	for i := range clean.Rows {
		clean.Rows[i].Detail = names.scrub(clean.Rows[i].Detail)
	}
	out.Report = &clean
	if r.recorder != nil {
		r.recorder.mu.Lock()
		defer r.recorder.mu.Unlock()
		for _, t := range r.recorder.tests {
			c := *t
			c.Completions = append([]Recorded(nil), t.Completions...)
			out.Tests = append(out.Tests, c)
		}
	}
	return out
}

// Write writes the file: JSON, for people to look at too.
func (r *Record) Write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(r)
}
