package cq

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// summaryQuantiles are those that a MetricSummary is written as.
var summaryQuantiles = [...]struct {
	label string
	q     float64
}{{"0.5", 0.5}, {"0.99", 0.99}, {"0.999", 0.999}}

// WriteOpenMetrics writes the metrics of all sources in the OpenMetrics text format,
// version 1.0.0, which Prometheus and its kin read: every family once, with the metrics
// of all sources in it, and one end mark. The media type is
// [OpenMetricsContentType].
//
// It writes nothing and returns an error when the metrics do not make a valid text: a
// name that the format does not allow, a family whose members disagree, or two metrics
// of a family with the same labels, as when a source is given twice.
func WriteOpenMetrics(w io.Writer, sources ...MetricSource) error {
	var e exposition
	for i, s := range sources {
		if s == nil {
			return fmt.Errorf("cq: write OpenMetrics: source %d is nil", i)
		}
		for _, m := range s.Metrics() {
			if err := e.add(m); err != nil {
				return fmt.Errorf("cq: write OpenMetrics: %w", err)
			}
		}
	}
	var b strings.Builder
	for _, f := range e.families {
		b.WriteString(f.text.String())
	}
	b.WriteString("# EOF\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// OpenMetricsContentType is the media type of what WriteOpenMetrics writes, for an
// HTTP handler to set.
const OpenMetricsContentType = "application/openmetrics-text; version=1.0.0; charset=utf-8"

// exposition is a text under construction.
type exposition struct {
	families []*family // in the order in which they were met first
	byName   map[string]*family
	samples  map[string]string // names of samples, and whose they are
}

// suffixes are those that the names of a family's samples may have.
var suffixes = [...][]string{
	MetricCounter:   {"", "_total", "_created"},
	MetricGauge:     {""},
	MetricSummary:   {"", "_count", "_sum", "_created"},
	MetricHistogram: {"", "_bucket", "_count", "_sum", "_created"},
}

type family struct {
	Metric // the first one
	text   strings.Builder
	labels map[string]bool
}

func (e *exposition) add(m Metric) error {
	f := e.byName[m.Name]
	if f == nil {
		if err := m.check(); err != nil {
			return err
		}
		f = &family{Metric: m, labels: make(map[string]bool)}
		if e.byName == nil {
			e.byName, e.samples = make(map[string]*family), make(map[string]string)
		}
		for _, s := range suffixes[m.Type] {
			if o := e.samples[m.Name+s]; o != "" {
				return fmt.Errorf("the families %s and %s may both have samples named %s", o, m.Name, m.Name+s)
			}
			e.samples[m.Name+s] = m.Name
		}
		e.byName[m.Name] = f
		e.families = append(e.families, f)
		f.head()
	}
	if f.Type != m.Type || f.Unit != m.Unit || f.Help != m.Help {
		return fmt.Errorf("metrics of the family %s differ in type, unit or help", m.Name)
	}
	labels, err := labelText(m.Labels)
	if err != nil {
		return fmt.Errorf("metric %s: %w", m.Name, err)
	}
	if f.labels[labels] {
		return fmt.Errorf("two metrics of the family %s have the labels {%s}: is a source given twice?", m.Name, labels)
	}
	f.labels[labels] = true
	return f.add(m, labels)
}

// check says whether a metric can begin a family.
func (m *Metric) check() error {
	switch {
	case !metricName(m.Name) || strings.HasSuffix(m.Name, "_total"):
		return fmt.Errorf("%q is no name of a family: it needs letters, digits and underscores, no digit first, and no _total at the end", m.Name)
	case m.Unit != "" && !strings.HasSuffix(m.Name, "_"+m.Unit):
		return fmt.Errorf("the name of the family %s does not end in its unit, %s", m.Name, m.Unit)
	case m.Type > MetricHistogram:
		return fmt.Errorf("metric %s has the unknown type %d", m.Name, m.Type)
	case m.Type == MetricSummary && m.Unit != "seconds":
		return fmt.Errorf("the summary %s is in seconds and has another unit, %q", m.Name, m.Unit)
	}
	return nil
}

// metricName says whether s is a name of letters, digits and underscores.
func metricName(s string) bool {
	for i, c := range []byte(s) {
		switch {
		case c == '_', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9' && i > 0:
		default:
			return false
		}
	}
	return s != ""
}

// escape is for label values and help texts.
func escape(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), `\`, `\\`)
	return strings.ReplaceAll(strings.ReplaceAll(s, "\n", `\n`), `"`, `\"`)
}

// labelText is what stands between the braces.
func labelText(labels []Label) (string, error) {
	var b strings.Builder
	for i, l := range labels {
		if !metricName(l.Name) || strings.HasPrefix(l.Name, "__") || l.Name == "le" || l.Name == "quantile" {
			return "", fmt.Errorf("%q is no name of a label", l.Name)
		}
		for _, o := range labels[:i] {
			if o.Name == l.Name {
				return "", fmt.Errorf("label %s is given twice", l.Name)
			}
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `%s="%s"`, l.Name, escape(l.Value))
	}
	return b.String(), nil
}

func (f *family) head() {
	fmt.Fprintf(&f.text, "# TYPE %s %v\n", f.Name, f.Type)
	if f.Unit != "" {
		fmt.Fprintf(&f.text, "# UNIT %s %s\n", f.Name, f.Unit)
	}
	if f.Help != "" {
		fmt.Fprintf(&f.text, "# HELP %s %s\n", f.Name, escape(f.Help))
	}
}

// sample writes one line.
func (f *family) sample(suffix, labels, extra string, v float64) {
	f.text.WriteString(f.Name)
	f.text.WriteString(suffix)
	if labels != "" && extra != "" {
		labels += ","
	}
	if labels += extra; labels != "" {
		f.text.WriteString("{" + labels + "}")
	}
	f.text.WriteString(" " + number(v) + "\n")
}

// add writes the samples of one metric.
func (f *family) add(m Metric, labels string) error {
	switch m.Type {
	case MetricCounter:
		if !(m.Value >= 0) || math.IsInf(m.Value, 1) {
			return fmt.Errorf("counter %s is %v", m.Name, m.Value)
		}
		f.sample("_total", labels, "", m.Value)
	case MetricGauge:
		f.sample("", labels, "", m.Value)
	case MetricSummary:
		if m.Latency == nil {
			return fmt.Errorf("the summary %s has no distribution", m.Name)
		}
		// One count, so that the quantiles and it do not contradict each other
		// where nothing was recorded: then there is no quantile.
		n := m.Latency.Count()
		for _, q := range summaryQuantiles {
			v := math.NaN()
			if n > 0 {
				v = float64(m.Latency.Quantile(q.q)) / 1e9
			}
			f.sample("", labels, `quantile="`+q.label+`"`, v)
		}
		f.sample("_count", labels, "", float64(n))
		f.sample("_sum", labels, "", float64(m.Latency.Sum())/1e9)
	case MetricHistogram:
		if len(m.Buckets) == 0 || !math.IsInf(m.Buckets[len(m.Buckets)-1].Limit, 1) {
			return fmt.Errorf("the last bucket of %s has a limit", m.Name)
		}
		for i, b := range m.Buckets {
			if i > 0 && (!(b.Limit > m.Buckets[i-1].Limit) || b.Count < m.Buckets[i-1].Count) {
				return fmt.Errorf("the buckets of %s are not in order, or do not count those before them", m.Name)
			}
			f.sample("_bucket", labels, `le="`+canonical(b.Limit)+`"`, float64(b.Count))
		}
		f.sample("_count", labels, "", float64(m.Buckets[len(m.Buckets)-1].Count))
		f.sample("_sum", labels, "", m.Sum)
	}
	return nil
}

// number is how the format writes numbers: integers without a point.
func number(v float64) string {
	switch {
	case math.IsNaN(v):
		return "NaN"
	case math.IsInf(v, 1):
		return "+Inf"
	case math.IsInf(v, -1):
		return "-Inf"
	}
	if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
		return strconv.FormatInt(int64(v), 10)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// canonical is how it writes the limits of buckets, which are labels and so have to be
// equal as texts: integers with ".0".
func canonical(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e6 {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	if math.IsInf(v, 1) {
		return "+Inf"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}
