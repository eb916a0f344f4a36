package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/tools/internal/plural"
)

// Coalescing is how a network device gathers packets before it interrupts.
type Coalescing struct {
	// Period is how long it waits, Frames for how many packets; 0 where it
	// does not say.
	Period time.Duration
	Frames uint32
	// Adaptive tells whether the driver chooses them by the traffic.
	Adaptive bool
}

// slowCoalescing is a wait that is longer than soft-RoCE takes for a message.
const slowCoalescing = 50 * time.Microsecond

// checkModeration looks at what delays completions on purpose. Hardware moderates its
// completion queues only when a program asks for it, so there only what it can do is noted:
// what its network device gathers is not RDMA.
var checkModeration = Check{
	Name:  "moderation",
	About: "whether interrupts are delayed to gather several: by completion queues, and by the network devices below soft ones",
	After: []string{"devices"},
	Run: func(_ context.Context, n *Node) ([]Finding, error) {
		var found []Finding
		var errs []error
		for _, d := range n.devices() {
			if d.Driver != "rxe" && d.Driver != "siw" {
				if a, err := n.query(d.Name); err == nil {
					n.saw("%s: completion queues can gather %s, for at most %v", d.Name,
						plural.Of(int(a.Attr.MaxModerationCount), "completion"), time.Duration(a.Attr.MaxModerationPeriod)*time.Microsecond)
				}
				continue
			}
			for _, p := range d.Ports {
				if p.Netdev == "" || n.Coalescing == nil {
					continue
				}
				c, err := n.Coalescing(p.Netdev)
				switch {
				case errors.Is(err, errors.ErrUnsupported), errors.Is(err, syscall.ENODEV), errors.Is(err, fs.ErrNotExist):
					n.saw("%s: %s gathers nothing", d.Object(&p), p.Netdev)
				case err != nil:
					errs = append(errs, unseen(d.Object(&p), err))
				default:
					n.saw("%s: %s gathers %s, for at most %v, adaptive: %v", d.Object(&p), p.Netdev, plural.Of(int(c.Frames), "packet"), c.Period, c.Adaptive)
					if c.Adaptive || c.Period < slowCoalescing || c.Frames == 1 {
						continue
					}
					found = append(found, Finding{
						Severity: Note, Object: d.Object(&p),
						What: fmt.Sprintf("packets wait up to %v in the network device for others: so does every message over soft-RoCE", c.Period),
						Seen: fmt.Sprintf("rx-usecs of %s is %d, and adaptive-rx is off", p.Netdev, c.Period.Microseconds()),
						Mend: fmt.Sprintf("ethtool -C %s adaptive-rx on, or ethtool -C %s rx-usecs 8", p.Netdev, p.Netdev),
					})
				}
			}
		}
		return found, errors.Join(errs...)
	},
}
