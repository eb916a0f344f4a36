package perf

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/tools/internal/plural"
	"github.com/goverbs/goverbs/tools/internal/printable"
	"github.com/goverbs/goverbs/tools/verbs/internal/usage"
	"github.com/goverbs/goverbs/uverbs"
)

// An offer is what a side wants to measure, and where the other one finds its queue pairs
// and its memory.
type offer struct {
	// What both sides have to want alike.
	Test          string `json:"test"`
	Transport     string `json:"transport"`
	Sizes         []int  `json:"sizes"`
	Iters         int    `json:"iters"`
	DurationNsec  int64  `json:"duration_nsec"`
	Warmup        int    `json:"warmup"`
	Bidirectional bool   `json:"bidirectional"`
	Atomic        string `json:"atomic"`
	QPs           int    `json:"qps"`

	// What a side has.
	Device    string     `json:"device"`
	MTU       int        `json:"mtu"`
	ReadDepth int        `json:"read_depth"` // reads that a queue pair takes as the target
	LID       uint16     `json:"lid"`
	GID       string     `json:"gid"`
	QKey      uint32     `json:"qkey"`
	Endpoints []endpoint `json:"endpoints"`
	// Region is where the other side may write or read: Stride bytes for each
	// queue pair.
	Region region `json:"region"`
	Stride uint64 `json:"stride"`
}

type endpoint struct {
	QPN uint32 `json:"qpn"`
	PSN uint32 `json:"psn"`
}

type region struct {
	Addr   uint64 `json:"addr"`
	Length uint64 `json:"length"`
	RKey   uint32 `json:"rkey"`
}

// a differing is a choice that the sides have made differently.
type differing struct{ flag, mine, theirs string }

// disagree says where the other side wants something else, or nil.
func (o *offer) disagree(peer *offer) error {
	var all []differing
	add := func(flag string, mine, theirs any) {
		if a, b := fmt.Sprint(mine), printable.Short(fmt.Sprint(theirs)); a != b {
			all = append(all, differing{flag, a, b})
		}
	}
	add("TEST", o.Test, peer.Test)
	add("-c", o.Transport, peer.Transport)
	if !slices.Equal(o.Sizes, peer.Sizes) {
		add("-s", sizesText(o.Sizes), sizesText(peer.Sizes))
	}
	add("-n", o.Iters, peer.Iters)
	add("-D", seconds(o.DurationNsec), seconds(peer.DurationNsec))
	add("-warmup", o.Warmup, peer.Warmup)
	add("-b", o.Bidirectional, peer.Bidirectional)
	if o.Test == peer.Test {
		add("-A", o.Atomic, peer.Atomic)
	}
	add("-q", o.QPs, peer.QPs)
	if len(all) == 0 {
		return nil
	}
	if all[0].flag == "TEST" {
		return usage.Errorf("the other side measures %s, and this one %s: start the same test on both", all[0].theirs, all[0].mine)
	}
	texts := make([]string, len(all))
	for i, d := range all {
		texts[i] = fmt.Sprintf("%s %s here and %s there", d.flag, d.mine, d.theirs)
	}
	return usage.Errorf("the two sides want different things: %s: give both the same flags", strings.Join(texts, ", "))
}

// sizesText is sizes as the flags say them.
func sizesText(sizes []int) string {
	switch len(sizes) {
	case 0:
		return "none"
	case 1:
		return fmt.Sprint(sizes[0])
	}
	return fmt.Sprintf("all (-a) from %d to %d", sizes[0], sizes[len(sizes)-1])
}

func seconds(nsec int64) string { return fmt.Sprintf("%gs", float64(nsec)/1e9) }

// check looks at an offer that agrees with one's own by what could do harm.
func (o *offer) check(mine *offer) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("the other side's offer makes no sense: "+format, args...)
	}
	if len(o.Endpoints) != mine.QPs {
		return bad("%s of %d", plural.Of(len(o.Endpoints), "queue pair"), mine.QPs)
	}
	for _, e := range o.Endpoints {
		if e.QPN >= 1<<24 || e.PSN >= 1<<24 {
			return bad("queue pair number %#x and PSN %#x, which have 24 bits", e.QPN, e.PSN)
		}
	}
	switch o.MTU {
	case 256, 512, 1024, 2048, 4096:
	default:
		return bad("a path MTU of %d", o.MTU)
	}
	if o.ReadDepth < 0 || o.ReadDepth > math.MaxUint8 {
		return bad("%d reads at a time", o.ReadDepth)
	}
	if _, err := parseGID(o.GID); err != nil {
		return bad("GID %q", printable.Short(o.GID))
	}
	largest := uint64(mine.largest())
	if o.Stride < largest || o.Stride > math.MaxInt64/maxQPs || o.Region.Length < o.Stride*uint64(mine.QPs) || o.Region.Addr > math.MaxUint64-o.Region.Length {
		return bad("%d bytes of memory at %#x, %d for each queue pair, where messages have %d", o.Region.Length, o.Region.Addr, o.Stride, largest)
	}
	return nil
}

// largest is the size of the longest message.
func (o *offer) largest() int { return o.Sizes[len(o.Sizes)-1] }

// parseGID reads a GID in IPv6 notation.
func parseGID(text string) (g uverbs.GID, err error) {
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		return g, fmt.Errorf("%q is no GID", text)
	}
	return uverbs.GID(a.As16()), nil
}

// remote is the memory for a queue pair of the other side.
func (o *offer) remote(i int) uverbs.RemoteAddr {
	r := uverbs.Remote{Addr: o.Region.Addr, Length: o.Region.Length, RKey: o.Region.RKey}
	return r.At(uint64(i) * o.Stride)
}
