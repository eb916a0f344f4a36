package model

import (
	"fmt"
	"strings"
	"time"
)

// String is the line of a script that says the same, without what is wrong with it. See
// [ParseScript].
func (f Fault) String() string {
	var b strings.Builder
	b.WriteString(pointName(f.At))
	if f.At == AtTime {
		fmt.Fprintf(&b, " %v", f.After)
	} else if f.Nth > 0 {
		fmt.Fprintf(&b, " %d", f.Nth)
	}
	switch {
	case f.Times == Forever:
		b.WriteString(" times=forever")
	case f.Times > 0:
		fmt.Fprintf(&b, " times=%d", f.Times)
	}
	if f.Device != "" {
		fmt.Fprintf(&b, " device=%s", f.Device)
	}
	if f.Number != 0 {
		switch f.At {
		case AtRequest:
			fmt.Fprintf(&b, " qp=%#x", f.Number)
		case AtAsync:
			fmt.Fprintf(&b, " type=%d", f.Number-1)
		default:
			fmt.Fprintf(&b, " cq=%#x", f.Number)
		}
	}
	if f.HasOpcode {
		fmt.Fprintf(&b, " op=%s", opcodeName(f.Opcode))
	}
	if f.Method != "" {
		fmt.Fprintf(&b, " method=%s", f.Method)
	}
	return b.String() + ": " + actionText(f.Do)
}

func actionText(a Action) string {
	switch a := a.(type) {
	case Drop:
		return "drop"
	case Delay:
		return fmt.Sprintf("delay %v", a.For)
	case Behind:
		return fmt.Sprintf("behind %d%s", a.Requests, optionalTime(" at-most=", a.AtMost))
	case NotReady:
		return fmt.Sprintf("not-ready timer=%d", a.Timer)
	case Fail:
		return fmt.Sprintf("fail syndrome=%#02x vendor=%#02x", a.Syndrome, a.Vendor)
	case Hold:
		return "hold" + optionalTime(" ", a.For)
	case Overrun:
		return "overrun"
	case Lose:
		return "lose"
	case Duplicate:
		return "duplicate"
	case Slow:
		return fmt.Sprintf("slow %v", a.For)
	case Refuse:
		return fmt.Sprintf("refuse %d", uint32(a.Errno))
	case Port:
		if a.Up {
			return fmt.Sprintf("port %d up", a.Number)
		}
		return fmt.Sprintf("port %d down", a.Number)
	case ChangeGID:
		return fmt.Sprintf("gid %d %d %v", a.Port, a.Index, a.GID)
	case Fatal:
		return "fatal"
	}
	return fmt.Sprintf("%T", a) // none that a script has
}

func opcodeName(op uint8) string {
	for name, x := range opcodes {
		if x == op {
			return name
		}
	}
	return fmt.Sprintf("%#02x", op)
}

// optionalTime is a time behind what introduces it, nothing for none.
func optionalTime(before string, d time.Duration) string {
	if d == 0 {
		return ""
	}
	return before + d.String()
}
