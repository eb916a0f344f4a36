package cq_test

import (
	"math"
	"os"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/tools/openmetrics"
)

// source reports what it holds.
type source []cq.Metric

func (s source) Metrics() []cq.Metric { return s }

func write(t *testing.T, sources ...cq.MetricSource) string {
	t.Helper()
	var b strings.Builder
	if err := cq.WriteOpenMetrics(&b, sources...); err != nil {
		t.Fatal(err)
	}
	if _, err := openmetrics.Parse(b.String()); err != nil {
		t.Fatalf("%v in\n%s", err, b.String())
	}
	return b.String()
}

func ExampleWriteOpenMetrics() {
	polls := func(queue string, n float64) source {
		return source{{Name: "polls", Help: "Looks at a queue.", Labels: []cq.Label{{Name: "cq", Value: queue}}, Value: n}}
	}
	cq.WriteOpenMetrics(os.Stdout, polls("3", 17), polls("4", 1))
	// Output:
	// # TYPE polls counter
	// # HELP polls Looks at a queue.
	// polls_total{cq="3"} 17
	// polls_total{cq="4"} 1
	// # EOF
}

// TestOpenMetricsText holds the whole text, with all types, two sources whose families
// are in different order, and values that have to be escaped.
func TestOpenMetricsText(t *testing.T) {
	h := new(cq.Histogram)
	for range 1000 {
		h.Record(1_000_000)
	}
	of := func(name string) []cq.Label {
		return []cq.Label{{Name: "device", Value: name}, {Name: "cq", Value: "0x1"}}
	}
	a, b := of("rxe0"), of("a \\ \"b\"\n\xff")
	one := source{
		{Name: "x_polls", Help: "Looks.\nTwo \\ lines.", Labels: a, Value: 1 << 40},
		{Name: "x_depth", Type: cq.MetricGauge, Labels: a, Value: -0.5},
		{Name: "x_wait_seconds", Unit: "seconds", Type: cq.MetricSummary, Labels: a, Latency: h},
		{Name: "x_batch", Type: cq.MetricHistogram, Labels: a, Sum: 9, Buckets: []cq.Bucket{{1, 3}, {1024, 4}, {1 << 20, 4}, {math.Inf(1), 4}}},
	}
	two := source{
		{Name: "x_wait_seconds", Unit: "seconds", Type: cq.MetricSummary, Latency: new(cq.Histogram)},
		{Name: "x_polls", Help: "Looks.\nTwo \\ lines.", Labels: b, Value: 0},
	}
	got := write(t, one, two)
	const want = `# TYPE x_polls counter
# HELP x_polls Looks.\nTwo \\ lines.
x_polls_total{device="rxe0",cq="0x1"} 1099511627776
x_polls_total{device="a \\ \"b\"\n�",cq="0x1"} 0
# TYPE x_depth gauge
x_depth{device="rxe0",cq="0x1"} -0.5
# TYPE x_wait_seconds summary
# UNIT x_wait_seconds seconds
x_wait_seconds{device="rxe0",cq="0x1",quantile="0.5"} 0.001
x_wait_seconds{device="rxe0",cq="0x1",quantile="0.99"} 0.001
x_wait_seconds{device="rxe0",cq="0x1",quantile="0.999"} 0.001
x_wait_seconds_count{device="rxe0",cq="0x1"} 1000
x_wait_seconds_sum{device="rxe0",cq="0x1"} 1
x_wait_seconds{quantile="0.5"} NaN
x_wait_seconds{quantile="0.99"} NaN
x_wait_seconds{quantile="0.999"} NaN
x_wait_seconds_count 0
x_wait_seconds_sum 0
# TYPE x_batch histogram
x_batch_bucket{device="rxe0",cq="0x1",le="1.0"} 3
x_batch_bucket{device="rxe0",cq="0x1",le="1024.0"} 4
x_batch_bucket{device="rxe0",cq="0x1",le="1.048576e+06"} 4
x_batch_bucket{device="rxe0",cq="0x1",le="+Inf"} 4
x_batch_count{device="rxe0",cq="0x1"} 4
x_batch_sum{device="rxe0",cq="0x1"} 9
# EOF
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := write(t); got != "# EOF\n" {
		t.Errorf("of no sources: %q", got)
	}
}

// TestOpenMetricsRefuses holds that what would make an invalid text makes none.
func TestOpenMetricsRefuses(t *testing.T) {
	gauge := cq.Metric{Name: "g", Type: cq.MetricGauge}
	with := func(change func(*cq.Metric)) source {
		m := gauge
		change(&m)
		return source{m}
	}
	for name, c := range map[string]struct {
		sources []cq.MetricSource
		says    string
	}{
		"twice":          {[]cq.MetricSource{source{gauge}, source{gauge}}, "same labels|given twice"},
		"another type":   {[]cq.MetricSource{source{gauge}, source{{Name: "g"}}}, "differ in type"},
		"another help":   {[]cq.MetricSource{source{gauge}, with(func(m *cq.Metric) { m.Help = "x" })}, "differ in type"},
		"clash":          {[]cq.MetricSource{source{{Name: "s_seconds", Unit: "seconds", Type: cq.MetricSummary, Latency: new(cq.Histogram)}, {Name: "s_seconds_count", Type: cq.MetricGauge}}}, "may both have samples"},
		"no source":      {[]cq.MetricSource{source{}, nil}, "source 1 is nil"},
		"no name":        {[]cq.MetricSource{source{{}}}, "no name"},
		"digit":          {[]cq.MetricSource{source{{Name: "9"}}}, "no name"},
		"total":          {[]cq.MetricSource{source{{Name: "x_total"}}}, "no name"},
		"unit":           {[]cq.MetricSource{source{{Name: "x", Unit: "seconds"}}}, "end in its unit"},
		"type":           {[]cq.MetricSource{source{{Name: "x", Type: 77}}}, "unknown type 77"},
		"label":          {[]cq.MetricSource{with(func(m *cq.Metric) { m.Labels = []cq.Label{{Name: "a b"}} })}, "label"},
		"reserved label": {[]cq.MetricSource{with(func(m *cq.Metric) { m.Labels = []cq.Label{{Name: "le"}} })}, "label"},
		"label twice":    {[]cq.MetricSource{with(func(m *cq.Metric) { m.Labels = []cq.Label{{Name: "a"}, {Name: "a"}} })}, "given twice"},
		"negative":       {[]cq.MetricSource{source{{Name: "x", Value: -1}}}, "is -1"},
		"no number":      {[]cq.MetricSource{source{{Name: "x", Value: math.NaN()}}}, "is NaN"},
		"no summary":     {[]cq.MetricSource{source{{Name: "x_seconds", Unit: "seconds", Type: cq.MetricSummary}}}, "no distribution"},
		"summary unit":   {[]cq.MetricSource{source{{Name: "x", Type: cq.MetricSummary, Latency: new(cq.Histogram)}}}, "is in seconds"},
		"no last bucket": {[]cq.MetricSource{source{{Name: "x", Type: cq.MetricHistogram, Buckets: []cq.Bucket{{1, 1}}}}}, "last bucket"},
		"falling":        {[]cq.MetricSource{source{{Name: "x", Type: cq.MetricHistogram, Buckets: []cq.Bucket{{1, 1}, {math.Inf(1), 0}}}}}, "not in order"},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			err := cq.WriteOpenMetrics(&b, c.sources...)
			if err == nil || b.Len() > 0 {
				t.Fatalf("error %v and the text %q", err, b.String())
			}
			for _, s := range strings.Split(c.says, "|") {
				if strings.Contains(err.Error(), s) {
					return
				}
			}
			t.Errorf("%v says nothing of %q", err, c.says)
		})
	}
}

// FuzzOpenMetrics: whatever the names and values, the text is valid or there is none.
func FuzzOpenMetrics(f *testing.F) {
	f.Add("goverbs_polls", "help", "cq", "1", "", 1.0, uint8(0))
	f.Add("a_seconds", "h\\\n\"", "device", "\\n\"\xfe", "seconds", 2.5, uint8(2))
	f.Add("b", "", "le", "", "b", math.Inf(1), uint8(3))
	f.Fuzz(func(t *testing.T, name, help, label, value, unit string, v float64, typ uint8) {
		h := new(cq.Histogram)
		h.Record(uint64(v))
		m := cq.Metric{
			Name: name, Help: help, Unit: unit, Type: cq.MetricType(typ), Value: v, Latency: h,
			Labels:  []cq.Label{{Name: "n", Value: "1"}, {Name: label, Value: value}},
			Buckets: []cq.Bucket{{Limit: math.Abs(v), Count: 1}, {Limit: math.Inf(1), Count: 2}}, Sum: math.Abs(v),
		}
		other := m
		other.Labels = []cq.Label{{Name: "n", Value: "2"}}
		last := cq.Metric{Name: "last", Type: cq.MetricGauge}
		var b strings.Builder
		if err := cq.WriteOpenMetrics(&b, source{m, last}, source{other}); err != nil {
			if b.Len() > 0 {
				t.Fatalf("%v after the text %q", err, b.String())
			}
			return
		}
		families, err := openmetrics.Parse(b.String())
		if err != nil {
			t.Fatalf("%v in\n%s", err, b.String())
		}
		if len(families) != 2 || families[0].Name != name || families[0].Samples[0].Labels[label] != strings.ToValidUTF8(value, "\uFFFD") {
			t.Fatalf("read back: %+v", families)
		}
	})
}

// TestOpenMetricsParser holds that the parser of these tests is strict.
func TestOpenMetricsParser(t *testing.T) {
	for name, text := range map[string]string{
		"no end":         "# TYPE a gauge\na 1\n",
		"two ends":       "# EOF\n# EOF\n",
		"blank line":     "# TYPE a gauge\n\na 1\n# EOF\n",
		"no type":        "a 1\n# EOF\n",
		"unknown type":   "# TYPE a thing\na 1\n# EOF\n",
		"no total":       "# TYPE a counter\na 1\n# EOF\n",
		"negative":       "# TYPE a counter\na_total -1\n# EOF\n",
		"two spaces":     "# TYPE a gauge\na  1\n# EOF\n",
		"unit":           "# TYPE a gauge\n# UNIT a seconds\na 1\n# EOF\n",
		"twice":          "# TYPE a gauge\na 1\na 1\n# EOF\n",
		"interleaved":    "# TYPE a gauge\n# TYPE b gauge\n# TYPE a gauge\na 1\n# EOF\n",
		"comma":          "# TYPE a gauge\na{x=\"1\"y=\"2\"} 1\n# EOF\n",
		"escape":         "# TYPE a gauge\na{x=\"\\t\"} 1\n# EOF\n",
		"limit":          "# TYPE a histogram\na_bucket{le=\"1\"} 1\na_bucket{le=\"+Inf\"} 1\n# EOF\n",
		"no last bucket": "# TYPE a histogram\na_bucket{le=\"1.0\"} 1\n# EOF\n",
		"count":          "# TYPE a histogram\na_bucket{le=\"+Inf\"} 1\na_count 2\na_sum 3\n# EOF\n",
		"apart":          "# TYPE a summary\na{x=\"1\",quantile=\"0.5\"} 1\na{x=\"2\",quantile=\"0.5\"} 1\na_count{x=\"1\"} 1\n# EOF\n",
		"late":           "# TYPE a gauge\na 1\n# HELP a x\n# EOF\n",
	} {
		if _, err := openmetrics.Parse(text); err == nil {
			t.Errorf("%s: taken for valid", name)
		}
	}
}
