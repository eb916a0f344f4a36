package uverbs_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
)

// usage is what a process and the device hold.
type usage struct {
	objects     map[string]uint64
	descriptors int
	rings       int // mapped queues of the device
	mappings    int
	pinned, rss int // bytes
	goroutines  int
	heap        uint64 // bytes of live Go objects
}

func measure(t testing.TB, s *system) usage {
	t.Helper()
	// Unmapping waits for the garbage collector to see that nobody looks at
	// a ring any more, and for the cleanup to run after it.
	for range 3 {
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
	debug.FreeOSMemory()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	u := usage{heap: mem.HeapAlloc, objects: s.objects(t), goroutines: runtime.NumGoroutine()}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	u.descriptors = len(fds)
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	u.mappings = strings.Count(string(text), "\n")
	u.rings = strings.Count(string(text), "/dev/infiniband/")
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, _ := strconv.Atoi(f[1])
		switch f[0] {
		case "VmPin:":
			u.pinned = n << 10
		case "VmRSS:":
			u.rss = n << 10
		}
	}
	return u
}

// Rounds from open to close leave the device and the process as they were.
func TestGuestLeavesNothing(t *testing.T) {
	s := guestSystem(t)
	// The kernel's collapsing of small pages into huge ones makes the resident
	// size grow by itself.
	if err := unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	round := func(i int) {
		d, err := s.open(s.name)
		if err != nil {
			t.Fatal(err)
		}
		p := newPairOn(t, d, true)
		w, err := poll.NewWaiter(poll.Event{Thread: i%2 == 0 && s.fabric == nil}, p.q)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		p.b.RecvQueue().Recv(1, p.mr.Span(0, 64))
		if err := p.b.RecvQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		p.a.SendQueue().SendImm(2, 5, p.mr.Span(64, 64))
		if err := p.a.SendQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		var wcs [4]uverbs.WC
		for n := 0; n < 2; {
			k, err := w.Wait(ctx, wcs[:])
			if err != nil {
				t.Fatal(err)
			}
			n += k
		}
		if i%3 == 0 {
			w.Close()
		}
		if i%2 == 0 {
			for _, c := range []interface{ Close() error }{p.a, p.b, p.q, p.mr, p.pd} {
				if err := c.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := p.dev.Close(); err != nil {
			t.Fatal(err)
		}
		if i%3 != 0 {
			w.Close()
		}
		if err := p.mem.Close(); err != nil {
			t.Fatal(err)
		}
	}
	warmUp, rounds := 200, 1000
	if s.fabric != nil {
		warmUp, rounds = 50, 250 // beside all the other tests on a host
	}
	for i := range warmUp {
		round(i)
	}
	s.leavesNothing(t, rounds, func() {
		for i := range rounds {
			round(i)
		}
	})
}

// leavesNothing measures before and after rounds of something.
func (s *system) leavesNothing(t *testing.T, rounds int, do func()) {
	t.Helper()
	before := measure(t, s)
	do()
	var after usage
	clean := func() bool {
		// The Go runtime maps a few ranges of its own as it goes, and grows a
		// little; a leak of one a round would show as more.
		same := maps.Equal(before.objects, after.objects) && after.descriptors <= before.descriptors && after.rings == 0 &&
			after.goroutines <= before.goroutines && after.pinned == before.pinned
		if s.fabric != nil {
			// Other tests of this process have left their heaps and their
			// garbage. A context is ten mappings, and more than 20 kB.
			return same && after.mappings < before.mappings+max(20, rounds/2) && after.heap < before.heap+8192*uint64(rounds)
		}
		return same && after.mappings < before.mappings+min(20, rounds) && after.rss <= before.rss+1<<20+1024*min(rounds, 10000)
	}
	for end := time.Now().Add(patience); ; {
		if after = measure(t, s); clean() {
			break
		}
		if time.Now().After(end) {
			t.Errorf("%d rounds have left something", rounds)
			break
		}
	}
	t.Logf("before %+v", before)
	t.Logf("after  %+v", after)
}

// A process that is killed in the middle of traffic leaves nothing behind.
func TestGuestKilled(t *testing.T) {
	if os.Getenv("GOVERBS_TEST_TRAFFIC") != "" {
		traffic(t)
		return
	}
	s := guestSystem(t)
	s.onMachine(t, "it ends with the process that is killed")
	before := s.objects(t)
	for range 3 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestGuestKilled$")
		cmd.Env = append(os.Environ(), "GOVERBS_TEST_TRAFFIC=1")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil || !strings.HasPrefix(line, "traffic") {
			t.Fatalf("the child said %q, %v", line, err)
		}
		time.Sleep(100 * time.Millisecond)
		if during := s.objects(t); maps.Equal(during, before) {
			t.Errorf("the child has no kernel objects: %v", during)
		}
		cmd.Process.Kill()
		cmd.Wait()
		var after map[string]uint64
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if after = s.objects(t); maps.Equal(before, after) {
				break
			}
		}
		if !maps.Equal(before, after) {
			t.Fatalf("kernel objects: %v before, %v after the kill", before, after)
		}
	}
}

// traffic writes back and forth until it is killed.
func traffic(t *testing.T) {
	p := newPair(t, true)
	var wcs [32]uverbs.WC
	for said := false; ; {
		for p.a.SendQueue().Room() > 0 {
			p.a.SendQueue().Write(1, p.peer.Regions[0].At(0), p.mr.Span(4096, 65536))
		}
		if err := p.a.SendQueue().Flush(); err != nil && !errors.Is(err, uverbs.ErrQueueFull) {
			t.Fatal(err)
		}
		if n, err := p.q.Poll(wcs[:]); err != nil || n > 0 && wcs[0].Err() != nil {
			t.Fatal(n, err, wcs[0].Err())
		} else if n > 0 && !said {
			fmt.Println("traffic")
			said = true
		}
	}
}
