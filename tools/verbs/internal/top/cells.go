package top

import (
	"fmt"
	"strconv"
)

// name is what the tables call an owner; modules stand in brackets, as ps has
// threads of the kernel.
func (o Owner) name() string {
	switch {
	case o.Kernel != "":
		return "[" + o.Kernel + "]"
	case o.PID != nil:
		return text(o.Process)
	}
	return "?"
}

// pid is the number of the process, or that of a thread of which no process is
// known.
func (o Owner) pid() string {
	switch {
	case o.PID != nil:
		return fmt.Sprint(*o.PID)
	case o.Thread != nil:
		return fmt.Sprintf("tid %d", *o.Thread)
	}
	return "-"
}

func text(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func number[T uint8 | uint32 | uint64](n *T) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

func yes(b *bool) string {
	switch {
	case b == nil:
		return "-"
	case *b:
		return "yes"
	}
	return "no"
}

// rate is a number a second in at most six characters.
func rate(r *float64) string {
	if r == nil {
		return "-"
	}
	return scaled(*r, 1000, [...]string{"", "k", "M", "G", "T", "P", "E"})
}

// atLeast is a rate that may be a lower limit.
func atLeast(r *float64, least *bool) string {
	if r != nil && deref(least) {
		return ">" + rate(r)
	}
	return rate(r)
}

// bytesText is a size in at most six characters.
func bytesText(n uint64) string {
	return scaled(float64(n), 1024, [...]string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"})
}

func scaled(v, step float64, units [7]string) string {
	i := 0
	for v >= 10000 && i < len(units)-1 {
		v /= step
		i++
	}
	digits := 0
	if v != 0 && v < 9.95 && (i > 0 || v != float64(int64(v))) {
		digits = 1
	}
	return strconv.FormatFloat(v, 'f', digits, 64) + units[i]
}

// duration is a time in microseconds.
func duration(usec float64) string {
	switch {
	case usec < 1000:
		return strconv.FormatFloat(usec, 'f', 0, 64) + "us"
	case usec < 1e6:
		return strconv.FormatFloat(usec/1000, 'f', 1, 64) + "ms"
	}
	return strconv.FormatFloat(usec/1e6, 'f', 1, 64) + "s"
}
