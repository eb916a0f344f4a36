package uverbs_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
	"github.com/goverbs/goverbs/uverbs/nldev"
)

// unpluggedIn is how long a removal may take from the event on: soft-RoCE waits until all
// programs have let go of the device. Where the guest has no processor of its own that is
// no measure: what is more than unpluggedLimit is a failure.
const unpluggedIn, unpluggedLimit = 2 * time.Second, 30 * time.Second

// unplug removes soft-RoCE's device, which is made again at the end of the test. What it
// returns waits until the removal is over and says how long it took.
func unplug(t *testing.T, info uverbs.DeviceInfo, gids int) (over func() time.Duration) {
	t.Helper()
	c, err := nldev.Dial()
	if err != nil {
		t.Fatal(err)
	}
	removed := make(chan error, 1)
	links, err := c.Links() // the index is another one each time
	i := slices.IndexFunc(links, func(l nldev.Link) bool { return l.Name == info.Name })
	if err != nil || i < 0 {
		t.Fatalf("%s is not among %+v: %v", info.Name, links, err)
	}
	start := time.Now()
	go func() { removed <- c.DelLink(links[i].Index) }()
	return func() time.Duration {
		t.Helper()
		defer c.Close()
		select {
		case err := <-removed:
			took := time.Since(start)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.NewLink(info.Name, "rxe", info.Netdev); err != nil {
				t.Fatalf("making %s again: %v", info.Name, err)
			}
			awaitGIDs(t, info.Name, gids)
			return took
		case <-time.After(patience):
			t.Fatal("the removal of the device goes on")
			return 0
		}
	}
}

// awaitGIDs waits until a new device has its addresses.
func awaitGIDs(t *testing.T, name string, n int) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		d, err := uverbs.Open(name, nil)
		if err == nil {
			table, err := d.GIDTable()
			d.Close()
			if err == nil && len(table) == n {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatalf("%s has not got its %d addresses: %v", name, n, err)
		}
	}
}

// unplugged is a program in mid-traffic whose device is removed. ready is called when
// there is traffic, and gone with the time of the event.
func unplugged(t *testing.T, ready func(d *uverbs.Device), gone func()) {
	t.Helper()
	s := guestSystem(t)
	d, err := s.open(s.name)
	if err != nil {
		t.Fatal(err)
	}
	ways := map[string]poll.Strategy{"goroutine": poll.Event{}, "thread": poll.Event{Thread: true}, "adaptive": poll.Adaptive{}, "spinning": nil}
	var traffic sync.WaitGroup
	var running atomic.Int32
	var pairs []*pair
	for name, way := range ways {
		p := newPairOn(t, d, true)
		pairs = append(pairs, p)
		wait := func(wcs []uverbs.WC) (int, error) {
			runtime.Gosched()
			return p.q.Poll(wcs)
		}
		if way != nil {
			w, err := poll.NewWaiter(way, p.q)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			wait = func(wcs []uverbs.WC) (int, error) { return w.Wait(t.Context(), wcs) }
		}
		// Receives that no message comes for stand until the end.
		for i := range uint64(8) {
			p.a.RecvQueue().Recv(1<<32+i, p.mr.Span(0, 64))
		}
		if err := p.a.RecvQueue().Flush(); err != nil {
			t.Fatal(err)
		}
		accepted := make(chan uint64, 1)
		var ended sync.Map
		traffic.Go(func() { // posts
			sq, id := p.a.SendQueue(), uint64(0)
			for {
				n := min(uint64(sq.Room()), 3)
				for i := range n {
					sq.Write(id+i, p.peer.Regions[0].At(0), p.mr.Span(4096, 4096))
				}
				if err := sq.Flush(); err != nil {
					if !errors.Is(err, uverbs.ErrDeviceGone) {
						t.Errorf("%s: Flush: %v", name, err)
					}
					break
				}
				id += n
				time.Sleep(time.Millisecond) // the guest may have less than a processor for all this
				if err := sq.WaitRoom(t.Context(), 1); err != nil {
					if !errors.Is(err, uverbs.ErrDeviceGone) {
						t.Errorf("%s: WaitRoom: %v", name, err)
					}
					break
				}
			}
			accepted <- id
		})
		traffic.Go(func() { // polls
			var wcs [16]uverbs.WC
			total := uint64(0)
			for {
				n, err := wait(wcs[:])
				if err != nil {
					if !errors.Is(err, uverbs.ErrDeviceGone) || errors.Is(err, os.ErrClosed) {
						t.Errorf("%s: %v", name, err)
					}
					break
				}
				for _, w := range wcs[:n] {
					if w.Status != uverbs.StatusSuccess && w.Status != uverbs.StatusFlushed {
						t.Errorf("%s: %+v", name, w)
					}
					if _, twice := ended.LoadOrStore(w.ID, true); twice {
						t.Errorf("%s: request %d ended twice", name, w.ID)
					}
				}
				if total < 100 && total+uint64(n) >= 100 {
					running.Add(1)
				}
				total += uint64(n)
			}
			if _, err := wait(wcs[:]); !errors.Is(err, uverbs.ErrDeviceGone) {
				t.Errorf("%s: afterwards: %v", name, err)
			}
			if want := <-accepted + 8; total != want {
				t.Errorf("%s: %d requests ended, want %d", name, total, want)
			}
		})
	}
	for end := time.Now().Add(patience); running.Load() < int32(len(ways)); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no traffic")
		}
	}
	ready(d)
	seen := 0
	for e := range d.Events() {
		if e.Type == uverbs.EventDeviceGone {
			gone()
			seen++
		}
	}
	if seen != 1 {
		t.Errorf("%d events of the end", seen)
	}
	traffic.Wait()
	if n := strings.Count(readFile(t, "/proc/self/maps"), "/dev/infiniband/"); n != 0 {
		t.Errorf("%d rings are mapped", n)
	}
	if err := pairs[0].a.Close(); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	for _, p := range pairs {
		if err := p.mem.Close(); err != nil {
			t.Error(err)
		}
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Soft-RoCE's removal waits until nobody uses the device. The library lets go of it by
// itself, whether or not it hears of the removal.
func TestGuestUnplug(t *testing.T) {
	s := guestSystem(t)
	s.onMachine(t, "its end is an event of the device")
	if os.Getenv(childEnv) == "unplug" {
		unplugged(t, func(*uverbs.Device) { fmt.Println("ready") }, func() { fmt.Println("gone") })
		return
	}
	d := s.device(t)
	info := d.Info()
	table, err := d.GIDTable()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	report := func(t *testing.T, took, event time.Duration) {
		t.Logf("the event came after %v, the removal was over %v later; to be within %v: %v", event, took-event, unpluggedIn, took-event <= unpluggedIn)
		if took-event > unpluggedLimit {
			t.Errorf("the removal took %v from the event on, want at most %v", took-event, unpluggedIn)
		}
	}
	for _, blocked := range []bool{false, true} {
		t.Run(fmt.Sprintf("uevents blocked %v", blocked), func(t *testing.T) {
			kernel.NoUevents.Store(blocked)
			defer kernel.NoUevents.Store(false)
			before := len(descriptors())
			var over func() time.Duration
			var start time.Time
			var event time.Duration
			unplugged(t, func(d *uverbs.Device) {
				start = time.Now()
				over = unplug(t, d.Info(), len(table))
			}, func() { event = time.Since(start) })
			report(t, over(), event)
			if n := len(descriptors()); n > before {
				t.Errorf("%d descriptors before, %d after: %v", before, n, descriptors())
			}
		})
	}
	// To a user namespace of its own the kernel tells nothing.
	t.Run("user namespace", func(t *testing.T) {
		child := exec.Command("/proc/self/exe", "-test.run=^TestGuestUnplug$", "-test.v")
		child.Env = append(os.Environ(), childEnv+"=unplug")
		child.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}},
		}
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		child.Stderr = child.Stdout
		// Being root there does not help with the limit, which a child inherits.
		var limit unix.Rlimit
		all := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
		if err := unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &all, &limit); err != nil {
			t.Fatal(err)
		}
		defer unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &limit, nil)
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		var said []string
		var over func() time.Duration
		var start time.Time
		var event time.Duration
		for lines := bufio.NewScanner(out); lines.Scan(); {
			switch line := lines.Text(); {
			case line == "ready":
				start = time.Now()
				over = unplug(t, info, len(table))
			case line == "gone":
				event = time.Since(start)
			default:
				said = append(said, line)
			}
		}
		if err := child.Wait(); err != nil || over == nil || event == 0 {
			t.Errorf("the child: %v\n%s", err, strings.Join(said, "\n"))
		}
		if over != nil {
			report(t, over(), event)
		}
	})
}
