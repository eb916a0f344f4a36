package waitreport

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// A 90% interval of the median: the numbers are those of the tables of the sign test.
func TestEstimateOf(t *testing.T) {
	for n, k := range map[int]int{1: 1, 2: 1, 4: 1, 5: 1, 8: 2, 10: 2, 11: 3, 12: 3, 20: 6, 25: 8} {
		x := make([]float64, n)
		for i := range x {
			x[i] = float64((i*7)%n + 1) // 1 to n, in some order
		}
		if n%7 == 0 {
			t.Fatal("choose another n")
		}
		want := Estimate{N: n, Median: float64(n+1) / 2, Low: float64(k), High: float64(n - k + 1)}
		if got := EstimateOf(x); got != want {
			t.Errorf("%d numbers: %+v, want %+v", n, got, want)
		}
	}
}

// example is a report with two ways to wait, one of which was left out of the flood.
func example() *Report {
	e := func(x float64) Estimate { return Estimate{N: 12, Median: x, Low: x * 0.9, High: x * 1.1} }
	r := &Report{Machine: Machine{Date: "2026-11-30", Processor: `Some <Processor> & "Co"`, CPUs: 2, System: "Linux 6.1", Load: 0.5, Emulated: true, Go: "go1.26", GOMAXPROCS: 2},
		Device: "rxe0", Devices: "rxe0, two processes", Slice: 200e3, Outstanding: 128, Bytes: 64}
	for _, pace := range []float64{10, 1000} {
		for i, way := range []string{"busy", "event"} {
			f := float64(1 + 9*i)
			r.Rows = append(r.Rows, Row{Workload: "paced", Way: way, Batch: 32, Pace: pace, Messages: 12 * uint64(1e6/pace/float64(1+999*i)), P50: e(2 * f), P99: e(5 * f), P999: e(5000 * f), Rate: e(9000), CPU: e(1 / f)})
		}
	}
	for _, b := range []int{1, 32} {
		r.Rows = append(r.Rows, Row{Workload: "flood", Way: "busy", Batch: b, Messages: 1e6, P50: e(60), P99: e(100), P999: e(200), Rate: e(1e6 * (1 + float64(b)/32)), CPU: e(1)})
	}
	if c, ok := Compare("one to the other", []float64{2, 2.2}, []float64{1, 1}); ok {
		r.Comparisons = append(r.Comparisons, c)
	}
	return r
}

func TestText(t *testing.T) {
	var b strings.Builder
	if err := example().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"EMULATED: times say nothing about hardware", "Medians of 12 rounds of 200 ms", "load 0.5 before",
		"  busy   10 us  2.00 (1.80 to 2.20)  5.00 (4.50 to 5.50)", "  event  1 ms   20.0 (18.0 to 22.0)",
		"  busy  32     60.0 (54.0 to 66.0)",
		"event, 1 ms: a round has about 1 message.",
		"one to the other: 2.10 (90% interval 1.55 to 2.83, n 2)",
		"Seen, busy: +94% messages per second, p99 +0.0 us",
		"Seen, p50 of the round trip, each 10 us: 2.00 us at 100% busy, 20.0 us at 10% with events; each 1 ms: 2.00 us",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestJSON(t *testing.T) {
	var b bytes.Buffer
	want, got := example(), new(Report)
	if err := want.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b.Bytes(), got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got, cmpopts.EquateApprox(1e-12, 0)); d != "" {
		t.Error(d)
	}
}

// The drawing is XML, has every way in its colour, and all its text is legible and inside.
func TestSVG(t *testing.T) {
	var b strings.Builder
	one := example()
	one.Device, one.Emulated = "sim1", false
	if err := WriteSVG(&b, one, example()); err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(strings.NewReader(b.String()))
	classes, text := map[string]int{}, ""
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, b.String())
		}
		switch token := token.(type) {
		case xml.CharData:
			text += string(token) + "\n"
		case xml.StartElement:
			for _, a := range token.Attr {
				if a.Name.Local == "class" {
					classes[token.Name.Local+" "+a.Value]++
				}
				if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
					t.Errorf("%s=%q", a.Name.Local, a.Value)
				}
			}
		}
	}
	for class, want := range map[string]int{
		"circle w0": 1 + 2*(2+2*2), // the legend; in two reports both paces, two batches in two figures
		"circle w1": 1 + 2*2,
		"path w0":   2 * (2 + 2), // diamonds and bars of processors
		"path w1":   2 * (1 + 2), // of the slow pace there are too few messages
	} {
		if classes[class] != want {
			t.Errorf("%d of %q, want %d", classes[class], class, want)
		}
	}
	for _, want := range []string{"On the model: a ConnectX in software", "On rxe0, in an emulated machine: compare, but do not take for hardware",
		`Some <Processor> & "Co", 2 CPUs, Linux 6.1, go1.26, GOMAXPROCS 2, 2026-11-30, load 0.5 before; medians of 12 rounds of 200 ms`,
		"busy: 2 µs, 5 µs, 5 ms", "event: 20 µs, 50 µs, longest 50 ms", "event: 20 µs, longest 50 ms", "each 10 µs", "each 1 ms", "128 writes under way: million/s", "p99, post to completion, µs", "prefers-color-scheme: dark"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// The drawing that the project shows is one of these.
func TestCommittedDrawing(t *testing.T) {
	b, err := os.ReadFile("../../../poll/waiting.svg")
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(b)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{">busy: ", ">event: ", ">adaptive: ", "On the model", "in an emulated machine"} {
		if !bytes.Contains(b, []byte(want)) {
			t.Errorf("the drawing lacks %q", want)
		}
	}
}

// There is something to draw, or an error; never a broken drawing.
func TestSVGOfLittle(t *testing.T) {
	if err := WriteSVG(io.Discard, new(Report)); err == nil {
		t.Error("drew a report with nothing in it")
	}
	for _, workload := range []string{"paced", "flood"} {
		r := example()
		var rows []Row
		for _, row := range r.Rows {
			if row.Workload == workload {
				rows = append(rows, row)
			}
		}
		r.Rows = rows[:1]
		var b strings.Builder
		if err := WriteSVG(&b, r); err != nil || strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "Inf") {
			t.Errorf("%s alone: %v\n%s", workload, err, b.String())
		}
	}
}

func TestLoopReport(t *testing.T) {
	r := NewLoops("with", "without", 1000)
	r.CPUs = 2
	r.Add("spin", "nothing", false, []float64{1, 1, 1}, []float64{2, 2, 2})
	r.Add("good", "as much", false, []float64{10, 10.1, 9.9}, []float64{20, 20, 20})
	r.Add("bad", "less", false, []float64{4, 4, 4.1}, []float64{20, 20, 20})
	r.Add("vague", "who knows", false, []float64{4, 20, 4.1}, []float64{20, 20, 20})
	r.Add("model", "is not judged", true, []float64{4, 4, 4.1}, []float64{20, 20, 20})
	r.Add("none", "not measured", false, nil, nil)
	r.Judge()
	want := map[string]string{"spin": "", "good": "met", "bad": "missed", "vague": "undecided", "model": ""}
	for _, row := range r.Rows {
		if v, ok := want[row.Loop]; !ok || v != row.Verdict {
			t.Errorf("%s: %q, want %q", row.Loop, row.Verdict, v)
		}
	}
	if len(r.Rows) != len(want) {
		t.Errorf("%d rows", len(r.Rows))
	}
	r.CPUs = 4 // then the loops are compared with themselves alone
	r.Judge()
	if r.Rows[1].Verdict != "missed" {
		t.Errorf("half as fast on four processors: %q", r.Rows[1].Verdict)
	}
	r.Stands = []Stand{{Thread: "locked", Signals: "with", PerSecond: EstimateOf([]float64{100})}}
	var text, asJSON strings.Builder
	if err := errors.Join(r.WriteText(&text), r.WriteJSON(&asJSON)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"0.500 (0.500 to 0.500)", "undecided", "locked", "as much"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if !json.Valid([]byte(asJSON.String())) {
		t.Errorf("no JSON: %s", asJSON.String())
	}
}
