package model

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goverbs/goverbs/abi"
)

// What faults may count to: so many fit an int and a line of a script.
const (
	maxCount  = 1<<31 - 1
	maxBehind = 1 << 20
	maxErrno  = 4095 // MAX_ERRNO of linux/err.h
)

// actionPoints are where an action can happen; nil for what is no action of this package,
// such as a pointer to one, which has the methods of its value.
func actionPoints(a Action) []Point {
	switch a.(type) {
	case Drop, Behind, NotReady, Fail:
		return []Point{AtRequest}
	case Delay:
		return []Point{AtRequest, AtEvent, AtAsync}
	case Hold, Overrun:
		return []Point{AtCompletion}
	case Duplicate, Lose:
		return []Point{AtEvent, AtAsync, AtCompletion}
	case Slow, Refuse:
		return []Point{AtIoctl}
	case Port, ChangeGID, Fatal:
		return []Point{AtTime}
	}
	return nil
}

// check refuses what is wrong with a fault whatever devices there are.
func (f *Fault) check() error {
	at := pointName(f.At)
	switch {
	case f.Do == nil:
		return errors.New("a fault that does nothing: set Do")
	case at == "":
		return fmt.Errorf("a fault at point %d: there are AtRequest to AtTime", f.At)
	case actionPoints(f.Do) == nil:
		return fmt.Errorf("a fault that does %T: Do is a value of one of the types of this package, no pointer and nothing around it", f.Do)
	case !slices.Contains(actionPoints(f.Do), f.At):
		return fmt.Errorf("%T cannot happen at %q, but at %q", f.Do, at, pointName(actionPoints(f.Do)[0]))
	case f.Nth < 0 || f.Times < Forever || f.Nth > maxCount || f.Times > maxCount:
		return fmt.Errorf("Nth is %d and Times %d: they count from 1 to %d, and Forever is the one negative number", f.Nth, f.Times, maxCount)
	}
	if err := f.checkNarrow(at); err != nil {
		return err
	}
	return checkAction(f.Do)
}

// checkNarrow checks what narrows a fault down.
func (f *Fault) checkNarrow(at string) error {
	switch {
	case f.At == AtTime && f.Device == "":
		return errors.New("what happens at a time happens to a device: say to which")
	case f.At == AtTime && (f.Nth != 0 || f.Times != 0 && f.Times != 1):
		return errors.New("a time comes once: without Nth, and with Times 1 at most")
	case f.After < 0 || f.After != 0 && f.At != AtTime:
		return fmt.Errorf("After is %v at %q: a time from 0 on, and only at \"time\"", f.After, at)
	case f.HasOpcode && f.At != AtRequest, f.Opcode != 0 && !f.HasOpcode:
		return fmt.Errorf("opcode %#x at %q: an opcode narrows down a request, with HasOpcode", f.Opcode, at)
	case f.HasOpcode && !slices.Contains(slices.Collect(maps.Values(opcodes)), f.Opcode):
		return fmt.Errorf("opcode %#x: the device carries %s", f.Opcode, opcodeList())
	case f.Method != "" && f.At != AtIoctl:
		return fmt.Errorf("method %.80q at %q: a method narrows down an ioctl", f.Method, at)
	case f.Method != "" && !methodNames()[f.Method]:
		return fmt.Errorf("no method and no write command is called %.80q%s", f.Method, similarMethods(f.Method))
	case f.Number == 0:
		return nil
	}
	switch f.At {
	case AtIoctl, AtTime:
		return fmt.Errorf("number %d at %q: numbers of queues and types of events narrow down other faults", f.Number, at)
	case AtAsync:
		if t := f.Number - 1; t >= uint32(len(asyncNames)) || asyncNames[t] == "" {
			var known []string
			for i, name := range asyncNames {
				if name != "" {
					known = append(known, fmt.Sprintf("%d %s", i, name))
				}
			}
			return fmt.Errorf("the device raises no event of type %d: it knows %s", t, strings.Join(known, ", "))
		}
	default:
		if f.Number > indexMask {
			return fmt.Errorf("number %#x: those of queues have 24 bits", f.Number)
		}
	}
	return nil
}

// checkAction checks what is to be done, as far as it needs no device.
func checkAction(a Action) error {
	switch a := a.(type) {
	case Delay:
		return checkDuration(a.For)
	case Slow:
		return checkDuration(a.For)
	case Behind:
		if a.Requests < 1 || a.Requests > maxBehind || a.AtMost < 0 {
			return fmt.Errorf("a request goes behind %d others, and waits %v at most: from 1 to %d, and no negative time", a.Requests, a.AtMost, maxBehind)
		}
	case Hold:
		if a.For < 0 {
			return fmt.Errorf("a completion is held for %v: a time from 0 on", a.For)
		}
	case Refuse:
		if a.Errno == 0 || a.Errno > maxErrno {
			return fmt.Errorf("a call is refused with errno %d: from 1 to %d", uint32(a.Errno), maxErrno)
		}
	case Fail:
		if a.Syndrome == 0 {
			return errors.New("a request fails with a syndrome: 0 is success")
		}
	case NotReady:
		if a.Timer > 31 {
			return fmt.Errorf("RNR timer code %d: they have 5 bits", a.Timer)
		}
	}
	return nil
}

func checkDuration(d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("a fault that takes %v: it is more than 0", d)
	}
	return nil
}

// check refuses a fault that cannot happen to these devices.
func (m *Model) check(f *Fault) error {
	if err := f.check(); err != nil {
		return err
	}
	d := m.Device(f.Device)
	if f.Device != "" && d == nil {
		var names []string
		for _, d := range m.devices {
			names = append(names, d.cfg.Name)
		}
		return fmt.Errorf("there is no device %q: there are %s", f.Device, strings.Join(names, ", "))
	}
	switch a := f.Do.(type) {
	case Port:
		_, err := d.findPort(a.Number)
		return err
	case ChangeGID:
		return d.checkGID(a.Port, a.Index, a.GID)
	}
	return nil
}

func pointName(p Point) string {
	for name, x := range points {
		if x == p {
			return name
		}
	}
	return ""
}

func opcodeList() string {
	var all []string
	for name, op := range opcodes {
		all = append(all, fmt.Sprintf("%#02x %s", op, name))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// methodNames are the names that [methodName] may return: of methods that the driver may
// have, and of write commands. Those are few and numbered from 0, with a bit for the
// extended ones.
var methodNames = sync.OnceValue(func() map[string]bool {
	all := make(map[string]bool)
	for m := range abi.Methods(uint32(abi.RDMA_DRIVER_MLX5)) {
		all[m.Name] = true
	}
	for n := range uint32(256) {
		for _, number := range []uint32{n, n | abi.IB_USER_VERBS_CMD_FLAG_EXTENDED} {
			if c, ok := abi.LookupCommand(number); ok {
				all[c.Name] = true
			}
		}
	}
	return all
})

// similarMethods is the end of a sentence about a name that does not exist: those that have
// the most in common with it.
func similarMethods(name string) string {
	const most, longest = 3, 80
	type near struct {
		name     string
		distance int
	}
	var all []near
	for known := range methodNames() {
		if len(name) > longest {
			break // it is like none, and takes long
		}
		if d := distance(methodStem(name), methodStem(known)); d <= max(2, len(methodStem(name))/3) {
			all = append(all, near{known, d})
		}
	}
	if len(all) == 0 {
		return ": see abi.Methods and abi.Command, such as UVERBS_METHOD_QP_CREATE or IB_USER_VERBS_CMD_REG_MR"
	}
	slices.SortFunc(all, func(a, b near) int {
		if a.distance != b.distance {
			return a.distance - b.distance
		}
		return strings.Compare(a.name, b.name)
	})
	var names []string
	for _, n := range all[:min(most, len(all))] {
		names = append(names, n.name)
	}
	return ": did you mean " + strings.Join(names, " or ") + "? All are in abi.Methods and abi.Command"
}

// methodStem is a name without what many begin with.
func methodStem(name string) string {
	name = strings.ToUpper(name)
	for _, p := range []string{"UVERBS_METHOD_", "IB_USER_VERBS_EX_CMD_", "IB_USER_VERBS_CMD_", "MLX5_IB_METHOD_"} {
		if s, ok := strings.CutPrefix(name, p); ok {
			return s
		}
	}
	return name
}

// distance is how many characters must be put in, taken out or changed to make one name
// the other.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := diagonal
			if a[i] != b[j] {
				d = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], d
		}
	}
	return row[len(b)]
}
