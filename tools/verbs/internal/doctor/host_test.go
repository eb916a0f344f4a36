package doctor

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/uverbs/nldev"
)

// This machine, whatever it is, can be looked at by whoever runs the tests. Without RDMA it has
// one fault, which says so, and not a dozen that follow.
func TestThisMachine(t *testing.T) {
	n := Host()
	r := survives(t, n)
	c, err := nldev.Dial()
	if err == nil {
		c.Close()
	}
	if n.System == "linux" && !errors.Is(err, nldev.ErrNoRDMA) {
		return // it may have anything
	}
	var faults []Finding
	for _, f := range r.Findings {
		if f.Severity == Fault {
			faults = append(faults, f)
		}
	}
	if len(faults) != 1 || r.Status() != StatusFault {
		t.Errorf("status %d, faults %+v", r.Status(), faults)
	}
}
