package uverbs

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs/nldev"
)

// The races of TestRaces on soft-RoCE, where a ring that is closed is really
// unmapped, and a queue pair really torn down beside its packets.
//
// GOVERBS_ROUNDS sets how often; the full number is 1000.
func TestGuestRaces(t *testing.T) {
	devices, err := Devices()
	if errors.Is(err, ErrNoDevices) {
		t.Skip("declared skip: no RDMA device here; run in the guest: rxevm exec")
	}
	if err != nil {
		t.Fatal(err)
	}
	where := place{
		open:  func() (*Device, error) { return Open(devices[0].Name, nil) },
		alloc: func() (*Memory, error) { return Alloc(4096, nil) },
	}
	// Rings are unmapped when the collector has seen that nobody looks at them.
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	for _, r := range races {
		for _, v := range []victim{polling, waiting, flushing} {
			r.victim = v
			t.Run(fmt.Sprintf("%s beside %v", r.name, v), func(t *testing.T) {
				before := counted(t)
				holdRaces(t, &r, roundsOr(t, 5), 0, where)
				runtime.GC()
				for end := time.Now().Add(30 * time.Second); !maps.Equal(before, counted(t)); time.Sleep(10 * time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("kernel objects: %v before, %v after", before, counted(t))
					}
				}
			})
		}
	}
}

// counted counts what the kernel says the device has.
func counted(t testing.TB) nldev.ResourceCounts {
	t.Helper()
	c, err := nldev.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	links, err := c.Links()
	if err != nil || len(links) == 0 {
		t.Fatalf("%d devices, %v", len(links), err)
	}
	counts, err := c.ResourceCounts(links[0].Index)
	if err != nil {
		t.Fatal(err)
	}
	return counts
}
