package pingpong

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Report is what a game came to. Its JSON keys are for programs to rely on.
type Report struct {
	Role     string `json:"role"` // "client" or "server"; "both" where one process is
	Device   string `json:"device"`
	Port     int    `json:"port"` // of the device
	GIDIndex int    `json:"gid_index"`
	MTU      int    `json:"mtu"`   // bytes
	Size     int    `json:"size"`  // bytes of a message
	Iters    int    `json:"iters"` // messages that each side sent
	Events   bool   `json:"events"`

	Seconds     float64 `json:"seconds"`
	MbitPerSec  float64 `json:"mbit_per_sec"` // both directions together
	UsecPerIter float64 `json:"usec_per_iter"`

	Local  ReportAddress `json:"local"`
	Remote ReportAddress `json:"remote"`

	// PayloadChecked is whether this side has looked at every byte of every
	// message that came. They were right, or there would be no report.
	PayloadChecked bool `json:"payload_checked"`
}

// ReportAddress is an [Address] in a Report.
type ReportAddress struct {
	LID uint16 `json:"lid"`
	QPN uint32 `json:"qpn"`
	PSN uint32 `json:"psn"`
	GID string `json:"gid"` // in IPv6 notation
}

func reportAddress(a Address) ReportAddress {
	return ReportAddress{LID: a.LID, QPN: a.QPN, PSN: a.PSN, GID: a.GID.String()}
}

// Report is the report of a game that took the given time.
func (g *Game) Report(elapsed time.Duration) Report {
	r := Report{
		Role: g.cfg.Role(), Device: g.dev.Name(), Port: g.cfg.IBPort, GIDIndex: g.Source().Index,
		MTU: g.cfg.MTU, Size: g.cfg.Size, Iters: g.cfg.Iters, Events: g.cfg.Events,
		Local: reportAddress(g.local), Remote: reportAddress(g.remote), PayloadChecked: g.cfg.Check,
	}
	r.time(elapsed)
	return r
}

// time fills in what follows from the time.
func (r *Report) time(elapsed time.Duration) {
	elapsed = max(elapsed, 1) // a coarse clock must not make figures infinite
	r.Seconds = elapsed.Seconds()
	usec := r.Seconds * 1e6
	r.MbitPerSec = float64(r.bytes()) * 8 / usec
	r.UsecPerIter = usec / float64(r.Iters)
}

// bytes is what both sides sent.
func (r *Report) bytes() int64 { return int64(r.Size) * int64(r.Iters) * 2 }

// WriteText writes the figures as ibv_rc_pingpong does.
func (r *Report) WriteText(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%d bytes in %.2f seconds = %.2f Mbit/sec\n%d iters in %.2f seconds = %.2f usec/iter\n",
		r.bytes(), r.Seconds, r.MbitPerSec, r.Iters, r.Seconds, r.UsecPerIter)
	return err
}

// WriteJSON writes the report as one JSON object on one line.
func (r *Report) WriteJSON(w io.Writer) error {
	return json.NewEncoder(w).Encode(r)
}
