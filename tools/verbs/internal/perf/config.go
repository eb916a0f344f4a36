package perf

import (
	"math"
	"time"

	"github.com/goverbs/goverbs/tools/verbs/internal/usage"
	"github.com/goverbs/goverbs/uverbs"
)

// Config is what to measure, and with whom. The zero value of a number stands for
// perftest's default, unless it says something else; Default has all that are no zero.
type Config struct {
	Test Test

	// Server is the host whose server to measure with; "" is to be the server.
	Server string
	Port   int // TCP

	Device   string // for who opens it; "": the first that can be opened
	IBPort   int    // from 1
	GIDIndex int    // or DefaultGID

	Transport string // "RC", "UC" or "UD"
	Size      int
	All       bool // all powers of two from 2 bytes on
	// Iters is how many messages each queue pair sends, or else Duration how long.
	Iters    int
	Duration time.Duration
	// Warmup is how many messages each queue pair sends before: -1 stands for
	// defaultWarmup.
	Warmup int

	QPs           int
	Bidirectional bool
	Atomic        string // FetchAdd or CompareSwap
	SendDepth     int
	RecvDepth     int
	RecvList      int // receives posted at a time
	PostList      int
	SignalEvery   int
	Inline        int // -1: what suits the test and the device
	ReadDepth     int
	MTU           int

	Wait   string // Busy, Event or Adaptive
	Vector int

	Timeout      int // exponent: 4.096 us times two to the power of it
	ServiceLevel int
	HopLimit     int
	TrafficClass int
	HugePages    bool

	NoPeak   bool // do not look for the best stretch
	Samples  bool // keep each latency, for WriteSamples
	Together bool // the other side is a goroutine of this process
}

// The ways to wait.
const (
	Busy     = "busy"
	Event    = "event"
	Adaptive = "adaptive"
)

// The atomic operations, in perftest's words.
const (
	FetchAdd    = "FETCH_AND_ADD"
	CompareSwap = "CMP_AND_SWAP"
)

// DefaultGID lets the device choose: the rules are those of uverbs.FromPort.
const DefaultGID = -1

// Default are perftest's choices.
func Default(t Test) Config {
	return Config{
		Test: t, Port: 18515, IBPort: 1, GIDIndex: DefaultGID, Transport: "RC", Warmup: -1, QPs: 1, Atomic: FetchAdd,
		PostList: 1, Inline: -1, Wait: Busy, Timeout: 14, HopLimit: 64,
	}
}

// perftest's numbers.
const (
	defaultIters     = 1000
	defaultWriteBW   = 5000 // iterations of write_bw
	defaultSizeBW    = 65536
	defaultSizeLat   = 2
	defaultSendDepth = 128
	defaultRecvDepth = 512
	// maxLossyRecv is how many receives there are at most where what finds none is lost.
	maxLossyRecv  = 16000
	defaultSignal = 100
	// signalAllAbove is the size from which on every message has a completion: few are
	// under way.
	signalAllAbove = 8192
	atomicSize     = 8
	largestAll     = 1 << 23
	inlineSend     = 236
	inlineWrite    = 220
	inlineUD       = 188
	// maxPeakIters is how many messages a test may have that looks for its best stretch
	// without being asked.
	maxPeakIters = 20000
	// defaultWarmup is how many messages each queue pair sends before it counts.
	defaultWarmup = 100
)

// FewestIters is how few messages of each queue pair can be measured, as with perftest.
const FewestIters = 5

// maxQPs and maxBuffers bound what one process asks for.
const (
	maxQPs     = 4096
	maxBuffers = min(4<<30, math.MaxInt/2) // bytes
)

// Complete checks what needs no device, and puts perftest's defaults in place of zeros.
// Its errors are *usage.Errors.
func (c *Config) Complete() error {
	if err := c.ranges(); err != nil {
		return err
	}
	if err := c.combination(); err != nil {
		return err
	}
	c.defaults()
	return c.lists()
}

// ranges checks each number by itself.
func (c *Config) ranges() error {
	for _, f := range []struct {
		name             string
		value, min, most int
		unset            int // what stands for the default
	}{
		{"TCP port (-p)", c.Port, 1, math.MaxUint16, 1},
		{"port of the device (-i)", c.IBPort, 1, math.MaxUint8, 1},
		{"message size (-s)", c.Size, 1, math.MaxInt32, 0},
		{"number of iterations (-n)", c.Iters, FewestIters, math.MaxInt32, 0},
		{"warm-up (-warmup)", c.Warmup, 0, math.MaxInt32, -1},
		{"number of queue pairs (-q)", c.QPs, 1, maxQPs, 1},
		{"send depth (-t)", c.SendDepth, 1, math.MaxInt16, 0},
		{"receive depth (-r)", c.RecvDepth, 1, math.MaxInt16, 0},
		{"list of receives (--recv_post_list)", c.RecvList, 1, math.MaxInt16, 0},
		{"list of requests (-l)", c.PostList, 1, math.MaxInt16, 1},
		{"completion interval (-Q)", c.SignalEvery, 1, math.MaxInt16, 0},
		{"inline size (-I)", c.Inline, 0, math.MaxInt16, -1},
		{"outstanding reads (-o)", c.ReadDepth, 1, math.MaxUint8, 0},
		{"completion vector (-X)", c.Vector, 0, math.MaxInt16, 0},
		{"timeout (-u)", c.Timeout, 0, 31, 0},
		{"service level (-S)", c.ServiceLevel, 0, 15, 0},
		{"hop limit (-L)", c.HopLimit, 1, math.MaxUint8, 1},
		{"traffic class (--tclass)", c.TrafficClass, 0, math.MaxUint8, 0},
	} {
		if f.value != f.unset && (f.value < f.min || f.value > f.most) {
			return usage.Errorf("%s %d: allowed are %d to %d", f.name, f.value, f.min, f.most)
		}
	}
	switch {
	case c.GIDIndex < DefaultGID || c.GIDIndex > math.MaxUint8:
		return usage.Errorf("GID index (-x) %d: allowed are 0 to %d; verbs devinfo lists them", c.GIDIndex, math.MaxUint8)
	case c.Duration < 0 || c.Duration > 365*24*time.Hour:
		return usage.Errorf("duration (-D) %v: allowed are 1s to a year", c.Duration)
	case c.Duration > 0 && c.Iters > 0:
		return usage.Errorf("-n and -D: choose one")
	}
	switch c.MTU {
	case 0, 256, 512, 1024, 2048, 4096:
	default:
		return usage.Errorf("path MTU (-m) %d: allowed are 256, 512, 1024, 2048 and 4096", c.MTU)
	}
	return nil
}

// combination checks what does not go together.
func (c *Config) combination() error {
	switch c.Transport {
	case "RC":
	case "UC":
		if c.Test.answers() {
			return usage.Errorf("%s over UC: only RC reads and has atomics", c.Test)
		}
	case "UD":
		if c.Test.Verb != Send {
			return usage.Errorf("%s over UD: datagrams can be sent only (send_bw, send_lat)", c.Test)
		}
	case "XRC", "DC", "SRD", "RawEth":
		return usage.Errorf("connection type (-c) %s is not supported: choose RC, UC or UD", c.Transport)
	default:
		return usage.Errorf("connection type (-c) %q: choose RC, UC or UD", c.Transport)
	}
	switch c.Wait {
	case Busy, Event, Adaptive:
	default:
		return usage.Errorf("way to wait %q: choose %s, %s or %s", c.Wait, Busy, Event, Adaptive)
	}
	sleeps := c.Wait != Busy
	switch {
	case c.Atomic != FetchAdd && c.Atomic != CompareSwap:
		return usage.Errorf("atomic operation (-A) %q: choose %s or %s", c.Atomic, FetchAdd, CompareSwap)
	case c.Test.Verb == Write && c.Test.Latency && sleeps:
		return usage.Errorf("write_lat waits for what is written, of which no event tells: leave out -e and -adaptive")
	case !sleeps && c.Vector != 0:
		return usage.Errorf("a completion vector (-X) is of events: give -e or -adaptive, too")
	case c.Test.Verb == Atomic && c.Size != 0 && c.Size != atomicSize:
		return usage.Errorf("message size (-s) %d: atomics have %d bytes", c.Size, atomicSize)
	case c.Test.Verb == Atomic && c.All:
		return usage.Errorf("all sizes (-a): atomics have %d bytes, always", atomicSize)
	case c.All && c.Size != 0:
		return usage.Errorf("-a and -s: choose one")
	case c.Test.answers() && c.Inline > 0:
		return usage.Errorf("-I: reads and atomics carry nothing")
	case !c.Test.answers() && c.ReadDepth > 0:
		return usage.Errorf("-o: %s reads nothing", c.Test)
	}
	if c.Test.Latency {
		for _, f := range []struct {
			given bool
			name  string
		}{{c.QPs > 1, "-q"}, {c.PostList > 1, "-l"}, {c.SignalEvery > 1, "-Q"}, {c.SendDepth > 1, "-t"}, {c.Bidirectional, "-b"}} {
			if f.given {
				return usage.Errorf("%s: in a test of latency one message is under way at a time", f.name)
			}
		}
	} else if c.Samples {
		return usage.Errorf("-H, -U and -histogram are of latencies: choose %s_lat", verbNames[c.Test.Verb])
	}
	return nil
}

// defaults puts numbers in place of zeros. Size stays 0 where it depends on the device.
func (c *Config) defaults() {
	t := c.Test
	if c.Iters == 0 && c.Duration == 0 {
		c.Iters = defaultIters
		if t.Verb == Write && !t.Latency {
			c.Iters = defaultWriteBW
		}
	}
	if c.Warmup < 0 {
		c.Warmup = defaultWarmup
		if c.Iters > 0 {
			c.Warmup = min(c.Warmup, c.Iters)
		}
	}
	switch {
	case c.Size != 0 || c.All:
	case t.Verb == Atomic:
		c.Size = atomicSize
	case t.Latency:
		c.Size = defaultSizeLat
	case c.Transport != "UD":
		c.Size = defaultSizeBW
	}
	if t.Latency {
		c.SendDepth, c.SignalEvery = 1, 1
	}
	if c.SendDepth == 0 {
		c.SendDepth = max(defaultSendDepth, c.PostList)
	}
	if c.SignalEvery == 0 {
		switch {
		case c.PostList > 1:
			c.SignalEvery = c.PostList
		case c.Size > signalAllAbove && c.Transport != "UD" && c.Wait == Busy:
			c.SignalEvery = 1
		default:
			c.SignalEvery = defaultSignal
		}
	}
	c.SignalEvery = min(c.SignalEvery, c.SendDepth)
	if c.Iters > maxPeakIters || c.Duration > 0 {
		c.NoPeak = true
	}
	if t.Verb == Send && c.RecvDepth == 0 {
		c.RecvDepth = defaultRecvDepth
		if c.lossy() && !t.Latency && c.Iters != 0 {
			c.RecvDepth = max(c.RecvDepth, min(c.Iters, maxLossyRecv))
		}
		c.RecvDepth = max(c.RecvDepth, c.RecvList)
	}
	if t.Verb != Send {
		c.RecvDepth, c.RecvList = 0, 0
	} else if c.RecvList == 0 {
		c.RecvList = max(1, min(c.RecvDepth/4, 64))
	}
}

// lists checks how lists, depths and completions go together.
func (c *Config) lists() error {
	switch {
	case c.PostList > c.SendDepth:
		return usage.Errorf("a list of %d requests (-l) in a send queue of %d (-t): it does not fit", c.PostList, c.SendDepth)
	case c.PostList > 1 && c.PostList%c.SignalEvery != 0:
		return usage.Errorf("a completion for %d requests (-Q) in lists of %d (-l): the list has to be a multiple", c.SignalEvery, c.PostList)
	case c.RecvList > c.RecvDepth:
		return usage.Errorf("a list of %d receives (--recv_post_list) in a receive queue of %d (-r): it does not fit", c.RecvList, c.RecvDepth)
	}
	return nil
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// lossy says whether messages may get lost.
func (c *Config) lossy() bool { return c.Transport != "RC" }

// qpType is the transport as the library has it.
func (c *Config) qpType() uverbs.QPType {
	switch c.Transport {
	case "UC":
		return uverbs.UC
	case "UD":
		return uverbs.UD
	}
	return uverbs.RC
}

// Role is "server" or "client".
func (c *Config) Role() string {
	if c.Server == "" {
		return "server"
	}
	return "client"
}

// sends and receives say what a side has to do beyond keeping its memory open; the
// server of a test of writes, reads or atomics has nothing to.
func (c *Config) sends() bool {
	return c.Server != "" || c.Bidirectional || c.Test.alternates()
}

func (c *Config) receives() bool {
	return c.Test.Verb == Send && (c.Server == "" || c.Bidirectional || c.Test.Latency)
}
