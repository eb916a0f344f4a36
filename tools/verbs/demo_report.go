package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// demoReport is what verbs demo -json writes. Its keys stay.
type demoReport struct {
	Devices [2]string  `json:"devices"` // one name twice: a real device
	Model   bool       `json:"model"`
	Proves  string     `json:"proves"`
	WhyNot  []string   `json:"why_not,omitempty"` // why not on other devices
	Steps   []demoStep `json:"steps"`
	OK      bool       `json:"ok"` // all steps were made, and held
	Next    string     `json:"next"`
}

// demoStep is one step. Which of the numbers are there depends on the step; Text
// says them all.
type demoStep struct {
	Name  string `json:"name"`
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
	Text  string `json:"text,omitempty"`

	Rounds     int      `json:"rounds,omitempty"`
	Bytes      int      `json:"bytes,omitempty"` // of each message or read
	MedianUsec *float64 `json:"median_usec,omitempty"`
	P99Usec    *float64 `json:"p99_usec,omitempty"`
	MeanUsec   *float64 `json:"mean_usec,omitempty"`

	Status         *uint32  `json:"wc_status,omitempty"`
	StatusText     string   `json:"wc_status_text,omitempty"`
	VendorSyndrome *uint32  `json:"vendor_err_synd,omitempty"`
	Vendor         string   `json:"vendor_err_synd_text,omitempty"`
	Means          string   `json:"means,omitempty"`
	Look           []string `json:"look,omitempty"`

	Violations  *int `json:"violations,omitempty"`
	ObjectsLeft *int `json:"objects_left,omitempty"`
}

// demoSteps is how many steps a demo has that held.
const demoSteps = 5

// demoOutput writes a demo, as text while it goes or as JSON at the end.
type demoOutput struct {
	text    bool
	w       io.Writer
	report  demoReport
	latency string
	err     error // the first of writing
}

func (o *demoOutput) printf(format string, args ...any) {
	if o.text && o.err == nil {
		_, o.err = fmt.Fprintf(o.w, format, args...)
	}
}

// begin says where the demo plays and what it proves.
func (o *demoOutput) begin(st *stage) {
	devices, proves := st.title()
	o.report = demoReport{Devices: st.names, Model: st.model != nil, Proves: proves, WhyNot: st.why, Next: realKernel, Steps: []demoStep{}}
	o.latency = st.latency()
	o.printf("%s. Success proves %s.\n", devices, proves)
	for _, w := range st.why {
		o.printf("     (%s)\n", w)
	}
}

// step tells one step.
func (o *demoOutput) step(s demoStep) {
	s.OK = s.Error == ""
	if s.MedianUsec != nil {
		s.Text += "; " + o.latency
	}
	o.report.Steps = append(o.report.Steps, s)
	if !s.OK {
		o.printf("FAIL %s: %s\n", s.Name, s.Error)
	} else {
		o.printf("ok   %s: %s\n", s.Name, s.Text)
	}
	if s.Status == nil {
		return
	}
	o.printf("     status          %s (%d)\n", s.StatusText, *s.Status)
	if s.VendorSyndrome != nil {
		o.printf("     vendor syndrome %#02x: %s\n", *s.VendorSyndrome, s.Vendor)
	}
	o.printf("     it means        %s\n", firstSentence(s.Means))
	if len(s.Look) > 0 {
		o.printf("     look first      %s\n", s.Look[0])
	}
}

// end says what comes next, and returns the first error of writing.
func (o *demoOutput) end() error {
	o.report.OK = len(o.report.Steps) == demoSteps
	for _, s := range o.report.Steps {
		o.report.OK = o.report.OK && s.OK
	}
	o.printf("The same on a real kernel: %s\n", realKernel)
	if !o.text {
		enc := json.NewEncoder(o.w)
		enc.SetIndent("", "  ")
		return enc.Encode(o.report)
	}
	return o.err
}

func firstSentence(text string) string {
	first, _, _ := strings.Cut(text, ". ")
	return strings.TrimSuffix(first, ".") + "."
}
