package perf

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// slack is by how much the timers of this process may be late: all its threads agree.
func slack(t *testing.T) time.Duration {
	t.Helper()
	threads, err := os.ReadDir(ownThreads)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]int{}
	for _, thread := range threads {
		b, err := os.ReadFile(slackOf(thread))
		if errors.Is(err, os.ErrNotExist) {
			continue // it has ended
		}
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSpace(string(b))]++
	}
	if len(all) != 1 {
		t.Fatalf("threads by their slack in ns: %v", all)
	}
	for ns := range all {
		n, err := strconv.ParseInt(ns, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(n)
	}
	return 0
}

// mayChange says whether this process has CAP_SYS_NICE.
func mayChange(t *testing.T) bool {
	t.Helper()
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		t.Fatal(err)
	}
	return data[0].Effective&(1<<unix.CAP_SYS_NICE) != 0
}

// While a loop polls, timers may be late, if the kernel lets it; afterwards they are as they
// were. They are punctual where one has to hear of the other side.
func TestSlack(t *testing.T) {
	if !mayChange(t) {
		slacken()() // which does no harm, and changes nothing
		t.Skip("declared skip: the slack of other threads' timers is not for processes without CAP_SYS_NICE")
	}
	usual := slack(t)
	for name, c := range map[string]struct {
		cfg      Config
		duration time.Duration
		want     time.Duration
	}{
		"busy":               {Config{Wait: Busy, Transport: "RC", Server: "there"}, 0, lateness},
		"server":             {Config{Wait: Busy, Transport: "RC", Test: Test{Verb: Send}}, 0, lateness},
		"client, by time":    {Config{Wait: Busy, Transport: "RC", Server: "there"}, time.Second, lateness},
		"server, by time":    {Config{Wait: Busy, Transport: "RC", Test: Test{Verb: Send}}, time.Second, usual},
		"both ways, by time": {Config{Wait: Busy, Transport: "RC", Server: "there", Bidirectional: true}, time.Second, usual},
		"events":             {Config{Wait: Event, Transport: "RC", Server: "there"}, 0, usual},
		"together":           {Config{Wait: Busy, Transport: "RC", Server: "there", Together: true}, 0, usual},
		"may lose":           {Config{Wait: Busy, Transport: "UC", Server: "there"}, 0, usual},
	} {
		restore := (&Side{cfg: c.cfg}).alone(c.duration)
		if has := slack(t); has != c.want {
			t.Errorf("%s: timers may be late by %v while it runs, want %v", name, has, c.want)
		}
		restore()
		if left := slack(t); left != usual {
			t.Errorf("%s: timers may be late by %v afterwards, want %v", name, left, usual)
		}
	}
}
