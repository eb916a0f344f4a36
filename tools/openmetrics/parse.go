package openmetrics

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Sample is one line of a text.
type Sample struct {
	Name   string
	Labels map[string]string
	Value  float64
}

// Family is what stands between the descriptions of two families.
type Family struct {
	Name, Type, Unit, Help string
	Samples                []Sample
}

var (
	omName   = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)
	omLabel  = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
	omNumber = regexp.MustCompile(`^([+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?(inf|infinity)|nan)$`)
	omLimit  = regexp.MustCompile(`^([0-9]\.[0-9]+|[1-9][0-9]{1,5}\.[0-9]+|[0-9](\.[0-9]+)?e[+-][0-9]{2,3}|\+Inf)$`)
)

// omSuffixes are the suffixes that samples of a type have.
var omSuffixes = map[string][]string{
	"counter":   {"_total", "_created"},
	"gauge":     {""},
	"summary":   {"", "_count", "_sum", "_created"},
	"histogram": {"_bucket", "_count", "_sum", "_created"},
}

// Parse reads a text by the grammar and the rules of the OpenMetrics
// specification, version 1.0.0, those that it states with MUST and that can be seen in
// one text without timestamps and exemplars, which it takes for errors.
func Parse(text string) ([]*Family, error) {
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("not UTF-8")
	}
	body, ok := strings.CutSuffix(text, "# EOF\n")
	if !ok {
		return nil, fmt.Errorf("no end mark")
	}
	if body != "" && !strings.HasSuffix(body, "\n") {
		return nil, fmt.Errorf("the end mark is not on a line of its own")
	}
	var all []*Family
	var f *Family
	seen := map[string]bool{}
	for line := range strings.Lines(body) {
		line = strings.TrimSuffix(line, "\n")
		if d, ok := strings.CutPrefix(line, "# "); ok {
			word, rest, _ := strings.Cut(d, " ")
			name, value, ok := strings.Cut(rest, " ")
			if !ok || !omName.MatchString(name) {
				return nil, fmt.Errorf("description %q", line)
			}
			if f == nil || f.Name != name {
				if seen[name] {
					return nil, fmt.Errorf("family %s is in two places", name)
				}
				seen[name] = true
				f = &Family{Name: name}
				all = append(all, f)
			}
			if err := f.describe(word, value); err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
			continue
		}
		s, err := parseSample(line)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		if f == nil || !slices.ContainsFunc(omSuffixes[f.Type], func(x string) bool { return f.Name+x == s.Name }) {
			return nil, fmt.Errorf("%q does not belong to the family before it", line)
		}
		f.Samples = append(f.Samples, s)
	}
	names := map[string]string{}
	for _, f := range all {
		for _, x := range append([]string{""}, omSuffixes[f.Type]...) {
			if o, ok := names[f.Name+x]; ok && o != f.Name {
				return nil, fmt.Errorf("%s and %s clash", o, f.Name)
			}
			names[f.Name+x] = f.Name
		}
		if err := f.check(); err != nil {
			return nil, fmt.Errorf("family %s: %w", f.Name, err)
		}
	}
	return all, nil
}

func (f *Family) describe(word, value string) error {
	field := map[string]*string{"TYPE": &f.Type, "UNIT": &f.Unit, "HELP": &f.Help}[word]
	if field == nil {
		return fmt.Errorf("unknown description")
	}
	if *field != "" || len(f.Samples) > 0 {
		return fmt.Errorf("it comes twice, or after samples")
	}
	*field = value
	switch word {
	case "TYPE":
		if omSuffixes[value] == nil {
			return fmt.Errorf("unknown type")
		}
	case "UNIT":
		if value != "" && !strings.HasSuffix(f.Name, "_"+value) {
			return fmt.Errorf("the name does not end in the unit")
		}
	case "HELP":
		if _, rest, err := unescape(value + `"`); err != nil || rest != "" {
			return fmt.Errorf("help is not escaped")
		}
	}
	return nil
}

// unescape reads an escaped string up to the quote that ends it.
func unescape(s string) (value, rest string, err error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '"':
			return b.String(), s[i+1:], nil
		case '\\':
			i++
			if i == len(s) {
				return "", "", fmt.Errorf("it ends in a backslash")
			}
			switch s[i] {
			case 'n':
				b.WriteByte('\n')
			case '"', '\\':
				b.WriteByte(s[i])
			default:
				return "", "", fmt.Errorf("escape \\%c", s[i])
			}
		default:
			b.WriteByte(c)
		}
	}
	return "", "", fmt.Errorf("no quote at the end")
}

func parseSample(line string) (s Sample, err error) {
	end := strings.IndexAny(line, "{ ")
	if end < 0 {
		return s, fmt.Errorf("no value")
	}
	s.Name, s.Labels = line[:end], map[string]string{}
	if !omName.MatchString(s.Name) {
		return s, fmt.Errorf("name")
	}
	rest := line[end:]
	if rest[0] == '{' {
		rest = rest[1:]
		for rest != "" && rest[0] != '}' {
			if len(s.Labels) > 0 {
				if rest[0] != ',' {
					return s, fmt.Errorf("no comma between labels")
				}
				rest = rest[1:]
			}
			name, after, ok := strings.Cut(rest, `="`)
			if !ok || !omLabel.MatchString(name) {
				return s, fmt.Errorf("label at %q", rest)
			}
			if _, ok := s.Labels[name]; ok {
				return s, fmt.Errorf("label %s twice", name)
			}
			if s.Labels[name], rest, err = unescape(after); err != nil {
				return s, err
			}
		}
		if rest == "" {
			return s, fmt.Errorf("no closing brace")
		}
		rest = rest[1:]
	}
	value, ok := strings.CutPrefix(rest, " ")
	if !ok || !omNumber.MatchString(strings.ToLower(value)) {
		return s, fmt.Errorf("value %q", value)
	}
	s.Value, err = strconv.ParseFloat(value, 64)
	return s, err
}

// series is the labels of a sample without one.
func (s Sample) series(without string) string {
	var all []string
	for k, v := range s.Labels {
		if k != without {
			all = append(all, fmt.Sprintf("%s=%q", k, v))
		}
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

// check holds what the samples of a family owe each other.
func (f *Family) check() error {
	if f.Type == "" {
		return fmt.Errorf("no type")
	}
	if f.Type == "counter" && strings.HasSuffix(f.Name, "_total") {
		return fmt.Errorf("the suffix is part of the name")
	}
	extra := map[string]string{"summary": "quantile", "histogram": "le"}[f.Type]
	whole := map[string]bool{} // every sample once
	ended := map[string]bool{} // the samples of one metric stand together
	last := ""
	of := map[string][]Sample{}
	for i, s := range f.Samples {
		key := s.series(extra)
		if id := s.Name + "{" + s.series("") + "}"; whole[id] {
			return fmt.Errorf("sample %s twice", id)
		} else {
			whole[id] = true
		}
		if i > 0 && key != last {
			ended[last] = true
		}
		if ended[key] {
			return fmt.Errorf("the samples of {%s} do not stand together", key)
		}
		last = key
		of[key] = append(of[key], s)
	}
	for key, samples := range of {
		if err := f.checkMetric(samples); err != nil {
			return fmt.Errorf("{%s}: %w", key, err)
		}
	}
	return nil
}

func (f *Family) checkMetric(samples []Sample) error {
	limit, count := "", -1.0 // of the last bucket
	var total, sum *float64
	for i, s := range samples {
		le, hasLE := s.Labels["le"]
		q, hasQ := s.Labels["quantile"]
		if hasLE != (s.Name == f.Name+"_bucket") || hasQ != (f.Type == "summary" && s.Name == f.Name) {
			return fmt.Errorf("sample %s has or lacks le or quantile", s.Name)
		}
		switch {
		case hasLE:
			if !omLimit.MatchString(le) {
				return fmt.Errorf("limit %q is not canonical", le)
			}
			v, _ := strconv.ParseFloat(le, 64)
			if was, err := strconv.ParseFloat(limit, 64); err == nil && !(v > was) || s.Value < count {
				return fmt.Errorf("buckets out of order at %s", le)
			}
			limit, count = le, s.Value
		case hasQ:
			if v, err := strconv.ParseFloat(q, 64); err != nil || v < 0 || v > 1 || s.Value < 0 {
				return fmt.Errorf("quantile %q = %v", q, s.Value)
			}
		case s.Name == f.Name+"_count":
			total = &samples[i].Value
		case s.Name == f.Name+"_sum":
			sum = &samples[i].Value
		}
		if f.Type != "gauge" && s.Value < 0 {
			return fmt.Errorf("%s is %v", s.Name, s.Value)
		}
	}
	if f.Type == "histogram" {
		if limit != "+Inf" || (total == nil) != (sum == nil) || total != nil && *total != count {
			return fmt.Errorf("the last bucket is %q with %v; count and sum are %v, %v", limit, count, total, sum)
		}
	}
	if f.Type == "counter" && len(samples) == 0 {
		return fmt.Errorf("no value")
	}
	return nil
}
