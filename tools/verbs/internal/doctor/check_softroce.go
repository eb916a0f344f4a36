package doctor

import (
	"context"
	"fmt"
)

// A kernelBug is one of soft-RoCE that programs run into.
type kernelBug struct {
	severity Severity
	what     string // what happens, and to which part of the library
	arch     string // as uname -m has it; "" for all
	bad      []span
}

// A span is a run of kernels: from is the first that has the bug, to the first that no longer
// has it.
type span struct{ from, to version }

// softRoCEBugs are those of Linux 5.10 and later that a user of the library meets, with the
// stable versions that mended them. Kernels that only a program with a hand-made request
// brings down, and versions that nobody has looked at, are not here.
var softRoCEBugs = []kernelBug{
	{
		severity: Fault,
		what:     "the driver fails the query that opens a device: uverbs.Open fails",
		bad:      []span{{version{6, 12, 9}, version{6, 12, 21}}, {version{6, 13, 0}, version{6, 13, 9}}},
	}, {
		severity: Warning,
		what:     "an RDMA write, read or atomic with a wrong key or address never completes: Shutdown of its queue pair ends only with the context",
		bad:      []span{{version{5, 10, 0}, version{5, 11, 0}}},
	}, {
		severity: Warning,
		what:     "CQ.Resize of a queue that has completions may hang in the kernel",
		bad:      []span{{version{5, 14, 0}, version{5, 15, 75}}, {version{5, 16, 0}, version{6, 0, 3}}},
	}, {
		severity: Warning,
		what:     "a queue pair or completion queue that cannot be made leaves the kernel with memory that was freed: NewQP and NewCQ at a limit may crash it",
		bad:      []span{{version{5, 15, 0}, version{5, 15, 15}}, {version{6, 1, 0}, version{6, 1, 140}}, {version{6, 12, 0}, version{6, 12, 30}}},
	}, {
		severity: Warning,
		what:     "Register may return a remote key that is not the region's: the peer's requests fail with a remote access error",
		bad:      []span{{version{6, 1, 0}, version{6, 1, 11}}},
	}, {
		severity: Warning,
		what:     "on processors other than x86 a completion may be read before it is written: CQ.Poll may return what was in its place before",
		arch:     "aarch64",
		bad:      []span{{version{5, 14, 0}, version{6, 1, 20}}, {version{6, 2, 0}, version{6, 3, 0}}},
	}, {
		severity: Warning,
		what:     "a request that is sent again after a lost packet may go on at the wrong place: messages of RC may be damaged, or fail",
		bad:      []span{{version{6, 1, 0}, version{6, 1, 55}}},
	}, {
		severity: Warning,
		what:     "the kernel may crash in the queue of packets that a requester has to look at",
		bad:      []span{{version{6, 1, 0}, version{6, 1, 94}}, {version{6, 8, 0}, version{6, 8, 12}}},
	}, {
		severity: Warning,
		what:     "the protocol may keep a processor busy without end, which the kernel logs as a soft lockup",
		bad:      []span{{version{5, 10, 0}, version{5, 10, 140}}},
	}, {
		severity: Warning,
		what:     "Close and Reset of a queue pair may hang in the kernel, beyond any context",
		bad:      []span{{version{6, 6, 0}, version{6, 6, 112}}, {version{6, 12, 0}, version{6, 12, 53}}, {version{6, 17, 0}, version{6, 17, 3}}},
	}, {
		severity: Warning,
		what:     "SRQ.Resize that fails leaves the queue without memory, and the kernel crashes at the next packet",
		bad:      []span{{version{6, 1, 0}, version{6, 1, 192}}, {version{6, 12, 0}, version{6, 12, 63}}},
	},
}

// checkSoftRoCE knows kernels whose soft-RoCE is broken.
var checkSoftRoCE = Check{
	Name:  "softroce",
	About: "whether this kernel's soft-RoCE has bugs that programs run into",
	After: []string{"devices"},
	Run: func(_ context.Context, n *Node) ([]Finding, error) {
		var soft []string
		for _, d := range n.devices() {
			if d.Driver == "rxe" {
				soft = append(soft, d.Name)
			}
		}
		if len(soft) == 0 {
			n.saw("no device is one of soft-RoCE")
			return nil, nil
		}
		v, from, ok := n.stableVersion()
		if !ok {
			n.saw("release %s does not tell which version of kernel.org it is made from", n.Release)
			return nil, nil
		}
		n.saw("the kernel is %v: %s", v, from)
		var found []Finding
		for _, b := range softRoCEBugs {
			if b.arch != "" && b.arch != n.Machine {
				continue
			}
			for _, s := range b.bad {
				if v.compare(s.from) < 0 || v.compare(s.to) >= 0 {
					continue
				}
				found = append(found, Finding{
					Severity: b.severity,
					What:     "soft-RoCE of this kernel: " + b.what,
					Seen:     fmt.Sprintf("%s has driver rxe, and the kernel is %v: %s", soft[0], v, from),
					Mend:     fmt.Sprintf("boot Linux %v or later", s.to),
				})
			}
		}
		return found, nil
	},
}
