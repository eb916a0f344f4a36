package perf

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// drawn draws and looks at the drawing: it is XML, and all of it is inside and a number.
func drawn(t *testing.T, reports []*Report) (text string) {
	t.Helper()
	var b strings.Builder
	if err := WriteSVG(&b, reports); err != nil {
		t.Fatal(err)
	}
	width, height := 0.0, 0.0
	inText := false
	for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return text
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, b.String())
		}
		switch token := token.(type) {
		case xml.CharData:
			if inText {
				text += string(token) + "\n"
			}
		case xml.EndElement:
			inText = false
		case xml.StartElement:
			inText = token.Name.Local == "text"
			at := map[string]string{}
			for _, a := range token.Attr {
				at[a.Name.Local] = a.Value
			}
			if token.Name.Local == "svg" {
				width, _ = strconv.ParseFloat(at["width"], 64)
				height, _ = strconv.ParseFloat(at["height"], 64)
				continue
			}
			for name, most := range map[string]float64{"x": width, "cx": width, "y": height, "cy": height} {
				if v, ok := at[name]; ok {
					if f, err := strconv.ParseFloat(v, 64); err != nil || !(f >= 0 && f <= most) {
						t.Errorf("%s=%q of %s, from 0 to %g", name, v, token.Name.Local, most)
					}
				}
			}
			for _, pair := range pairs.FindAllStringSubmatch(at["d"], -1) {
				x, xerr := strconv.ParseFloat(pair[1], 64)
				y, yerr := strconv.ParseFloat(pair[2], 64)
				if xerr != nil || yerr != nil || !(x >= 0 && x <= width && y >= 0 && y <= height) {
					t.Errorf("%q in d=%q", pair[0], at["d"])
				}
			}
			if strings.Contains(at["d"], "NaN") || strings.Contains(at["d"], "Inf") {
				t.Errorf("d=%q", at["d"])
			}
		}
	}
}

var pairs = regexp.MustCompile(`[ML](\S+) ([^\sHVLM]+)`)

func sweep(test string, n int) (all []*Report) {
	for i := range n {
		r := &Report{Test: test, Transport: "RC", Device: `odd <device> & "name"`, Bytes: 2 << i, Wait: "busy", QPs: 1, PostList: 1, SignalEvery: 100, SendDepth: 128}
		if strings.HasSuffix(test, "_bw") {
			r.BandwidthMBps = 100 * float64(i+1)
		} else {
			us := math.Exp2(float64(i) / 3)
			r.Latency = &Latency{N: 1000, Min: us, Typical: 2 * us, P99: 5 * us, P999: 50 * us, Max: 400 * us}
			r.Histogram = []Bucket{{us, 400}, {2 * us, 500}, {5 * us, 90}, {50 * us, 9}, {400 * us, 1}}
		}
		all = append(all, r)
	}
	return all
}

func TestDrawing(t *testing.T) {
	for _, tt := range []struct {
		reports []*Report
		want    []string
		not     []string
	}{
		{sweep("send_bw", 23), []string{`verbs perf send_bw: RC, odd <device> & "name"`, "MB/s", "2 B", "8 KiB", "8 MiB", "3000", "a completion for 100"}, []string{"latency", "share"}},
		{sweep("send_bw", 1), []string{"2 B", "100"}, []string{"share"}},
		{sweep("read_lat", 23), []string{"latency against the size", "p50", "p99.9", "share of messages", "0.1%", "100%", "8 MiB", "1 ms"}, []string{"MB/s", "post list"}},
		{sweep("send_lat", 1), []string{"share of messages", "2 B", "100 µs"}, []string{"against"}},
	} {
		text := drawn(t, tt.reports)
		for _, want := range tt.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s, %d sizes: no %q in\n%s", tt.reports[0].Test, len(tt.reports), want, text)
			}
		}
		for _, not := range tt.not {
			if strings.Contains(text, not) {
				t.Errorf("%s, %d sizes: %q in\n%s", tt.reports[0].Test, len(tt.reports), not, text)
			}
		}
	}
	partial := sweep("send_bw", 2)
	partial[0].Partial = true
	if !strings.Contains(drawn(t, partial), "INTERRUPTED") {
		t.Error("a drawing of what was interrupted does not say so")
	}
}

// Of numbers that cannot be drawn nothing is drawn; of those beside them all is.
func TestDrawingOfHostileNumbers(t *testing.T) {
	hostile := []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, -1}
	for _, x := range hostile {
		bw, lat := sweep("send_bw", 3), sweep("send_lat", 3)
		bw[1].BandwidthMBps = x
		bw[2].Bytes = 0
		drawn(t, bw)
		lat[0].Latency.Typical, lat[1].Latency.P999 = x, x
		lat[0].Histogram[2].Usec = x
		lat[1].Histogram = nil
		lat[2].Latency = nil
		drawn(t, lat)
		if err := WriteSVG(io.Discard, []*Report{{Test: "send_bw", Bytes: 64, BandwidthMBps: x}}); err == nil {
			t.Errorf("%g was drawn", x)
		}
	}
	for _, all := range [][]*Report{nil, {{}}, {{Test: "send_lat", Bytes: 64}}, {{Test: "send_bw", Bytes: -1, BandwidthMBps: 1}}} {
		if err := WriteSVG(io.Discard, all); err == nil {
			t.Errorf("%v was drawn", all)
		}
	}
	for _, h := range [][]Bucket{{{1, 0}}, {{1, -1}}, {{2, 1}, {1, 1}}, {{1, math.MaxInt64}, {2, math.MaxInt64}}} {
		lat := sweep("send_lat", 1)
		lat[0].Histogram = h
		if text := drawn(t, append(sweep("send_bw", 1), lat...)); strings.Contains(text, "share") {
			t.Errorf("%v was drawn", h)
		}
	}
	huge := sweep("send_bw", 1)
	huge[0].BandwidthMBps, huge[0].Bytes = math.MaxFloat64/8, math.MaxInt32
	drawn(t, huge)
	tiny := sweep("send_lat", 2)
	for _, r := range tiny {
		r.Latency = &Latency{N: 1, Typical: 1e-300, P99: 1e-300, P999: 1e300}
		r.Histogram = []Bucket{{1e-300, 1}, {1e300, 1}}
	}
	drawn(t, tiny)
}
