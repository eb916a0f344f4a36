package perf

import (
	"strings"

	"github.com/goverbs/goverbs/tools/verbs/internal/usage"
)

// A Verb is what a test does.
type Verb uint8

// The verbs that are tested.
const (
	Send Verb = iota
	Write
	Read
	Atomic
)

var verbNames = []string{"send", "write", "read", "atomic"}

// verbTitles are perftest's words.
var verbTitles = []string{"Send", "RDMA_Write", "RDMA_Read", "Atomic"}

// A Test is one of perftest's programs: a verb, and what of it is measured.
type Test struct {
	Verb    Verb
	Latency bool // or else the bandwidth
}

// TestNames are the names of all tests.
func TestNames() []string {
	var all []string
	for v := range verbNames {
		all = append(all, Test{Verb(v), false}.String(), Test{Verb(v), true}.String())
	}
	return all
}

// String is the name: perftest's without ib_.
func (t Test) String() string {
	if t.Latency {
		return verbNames[t.Verb] + "_lat"
	}
	return verbNames[t.Verb] + "_bw"
}

// ParseTest finds the test of a name, which may begin with ib_.
func ParseTest(name string) (Test, error) {
	short := strings.TrimPrefix(name, "ib_")
	for v := range verbNames {
		for _, lat := range []bool{false, true} {
			if t := (Test{Verb(v), lat}); t.String() == short {
				return t, nil
			}
		}
	}
	return Test{}, usage.Errorf("there is no test %q: choose one of %s", name, strings.Join(TestNames(), ", "))
}

// answers says whether the side that is measured asks the peer's device for something:
// then only one side's processor works.
func (t Test) answers() bool { return t.Verb == Read || t.Verb == Atomic }

// alternates says whether the sides send by turns, so that half a round trip is measured.
func (t Test) alternates() bool { return t.Latency && !t.answers() }
