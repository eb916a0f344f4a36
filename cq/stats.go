package cq

// MetricSource is what has statistics: a completion queue, a waiter, a group of them.
// [WriteOpenMetrics] writes those of many sources at once.
type MetricSource interface {
	// Metrics returns the numbers of this moment. It may allocate. Any goroutine
	// may call it.
	Metrics() []Metric
}

// Metric is one number, or one distribution, that a MetricSource reports. Metrics of
// one Name are a family, wherever they come from: they agree on Type, Unit and Help,
// and no two of them have the same labels.
type Metric struct {
	// Name is the name of the family, as goverbs_cq_polls: letters, digits and
	// underscores. That of a family with a Unit ends in it, as in
	// goverbs_cq_post_to_completion_seconds. The _total of a counter is not part
	// of it.
	Name string
	// Type says which of the fields below hold the value.
	Type MetricType
	// Unit is "seconds", "bytes" or the like, or "" for plain counts.
	Unit string
	// Help is one sentence for people.
	Help string
	// Labels tell the metrics of a family apart: the device and the queue, the
	// status.
	Labels []Label

	// Value is that of a MetricCounter, which never falls, or a MetricGauge.
	Value float64
	// Latency is the distribution of a MetricSummary, in nanoseconds. It is
	// written as quantiles in seconds.
	Latency *Histogram
	// Buckets, Sum: a MetricHistogram. Buckets are in the order of their limits;
	// the last one has no limit but what math.Inf(1) says. Sum is that of all
	// numbers that were counted.
	Buckets []Bucket
	Sum     float64
}

// Label is a name of letters, digits and underscores, and any value.
type Label struct{ Name, Value string }

// Bucket counts how many of the numbers of a histogram are at most a limit, those of
// the buckets before it included.
type Bucket struct {
	Limit float64
	Count uint64
}

// MetricType is what kind of number a metric is.
type MetricType uint8

// The types of metrics.
const (
	MetricCounter MetricType = iota
	MetricGauge
	MetricSummary
	MetricHistogram
)

// String is the name that the text format has for the type.
func (t MetricType) String() string {
	switch t {
	case MetricCounter:
		return "counter"
	case MetricGauge:
		return "gauge"
	case MetricSummary:
		return "summary"
	case MetricHistogram:
		return "histogram"
	}
	return "unknown"
}
