package uverbs

import (
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// The races of TestRaces on a device, where a ring that is closed is really unmapped,
// and a queue pair really torn down beside its packets.
//
// GOVERBS_ROUNDS sets how often; the full number is 1000.
func TestGuestRaces(t *testing.T) {
	s := GuestSystem(t)
	where := place{
		open:  func() (*Device, error) { return s.Open(s.Name) },
		alloc: func() (*Memory, error) { return Alloc(4096, nil) },

		noThreads: s.Simulated,
	}
	// Rings are unmapped when the collector has seen that nobody looks at them.
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	for _, r := range races {
		for _, v := range []victim{polling, waiting, flushing} {
			r.victim = v
			t.Run(fmt.Sprintf("%s beside %v", r.name, v), func(t *testing.T) {
				before := s.Objects()
				holdRaces(t, &r, roundsOr(t, 5), 0, where)
				runtime.GC()
				for end := time.Now().Add(patience); !maps.Equal(before, s.Objects()); time.Sleep(10 * time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("objects of the device: %v before, %v after", before, s.Objects())
					}
				}
			})
		}
	}
}
