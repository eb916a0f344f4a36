package perf

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/poll"
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

// While a stream polls, timers may be late, if the kernel lets it; afterwards they are as they
// were, also if it fails. They are not where it matters when one hears of the other side.
func TestSlack(t *testing.T) {
	if !mayChange(t) {
		slacken()() // which does no harm, and changes nothing
		t.Skip("declared skip: the slack of other threads' timers is not for processes without CAP_SYS_NICE")
	}
	usual := slack(t)
	for name, c := range map[string]struct {
		wait  wait
		lossy bool
		waits bool // for word of the other side
		want  time.Duration
	}{
		"busy":          {want: lateness},
		"events":        {wait: wait{waiter: new(poll.Waiter)}, want: usual},
		"together":      {wait: wait{yield: true}, want: usual},
		"may lose":      {lossy: true, want: usual},
		"until told so": {waits: true, want: usual},
	} {
		t.Run(name, func(t *testing.T) {
			for _, fails := range []error{nil, errors.New("the other side is gone")} {
				s := &stream{wait: &c.wait, lossy: c.lossy}
				if c.waits {
					s.expected = unknown
				}
				has := time.Duration(-1)
				s.tell = func(int64) error { // there is nothing to send
					has = slack(t)
					s.expected = 0
					return fails
				}
				if err := s.run(); err != fails {
					t.Errorf("%v, want %v", err, fails)
				}
				if has != c.want {
					t.Errorf("timers may be late by %v while it runs, want %v", has, c.want)
				}
				if left := slack(t); left != usual {
					t.Errorf("timers may be late by %v afterwards, want %v", left, usual)
				}
			}
		})
	}
}
