package doctor

import (
	"context"
	"fmt"
)

// checkFork looks at what becomes of registered memory when a process forks.
var checkFork = Check{
	Name:  "fork",
	About: "whether registered memory stays the parent's when a process forks",
	After: []string{"system", "modules", "devices"},
	Run: func(_ context.Context, n *Node) ([]Finding, error) {
		if len(n.devices()) == 0 {
			return nil, nil
		}
		s, err := n.settings()
		if err != nil {
			return nil, err
		}
		n.saw("RDMA netlink, SYS_GET: COPY_ON_FORK is %v", s.CopyOnFork)
		if s.CopyOnFork {
			return nil, nil
		}
		return []Finding{{
			Severity: Note,
			What:     "the kernel does not copy registered pages for a child at fork: a C program that forks may go on with pages that the device does not write to (goverbs and os/exec are safe)",
			Seen:     fmt.Sprintf("RDMA netlink, SYS_GET: no COPY_ON_FORK; uname -r is %s, and Linux has it from 5.12 on", n.Release),
			Mend:     "export RDMAV_FORK_SAFE=1 # for programs of libibverbs that fork; or boot Linux 5.12 or newer",
		}}, nil
	},
}
