package sim_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
)

// Whatever goes wrong, while several devices work for one another: every request that was
// accepted comes to one end, under its own id, at the latest with the end of its queue
// pair; nothing hangs, everything closes, nothing is left, and the device has seen
// nothing that a correct program does not do. GOVERBS_ROUNDS is how many lives there are.
func TestRandomFaults(t *testing.T) {
	const each = 200
	rounds := uint64(each)
	if s := os.Getenv("GOVERBS_ROUNDS"); s != "" {
		n, err := strconv.ParseUint(s, 10, 32)
		if err != nil {
			t.Fatalf("GOVERBS_ROUNDS: %v", err)
		}
		rounds = n
	}
	ends, excused := 0, 0
	for seed := range rounds {
		// By name one life can be run alone.
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			script := randomScript(rand.New(rand.NewPCG(seed, 1)))
			l := runLife(t, seed, script)
			ends, excused = ends+l.ended, excused+l.lost
			if len(l.wrong) == 0 {
				return
			}
			// What fails without a fault fails because of others.
			for i := 0; i < len(script); {
				less := append(script[:i:i], script[i+1:]...)
				if m := runLife(t, seed, less); len(m.wrong) > 0 {
					l, script = m, less
				} else {
					i++
				}
			}
			t.Errorf("with the faults\n\t%s\n%s", strings.Join(script, "\n\t"), strings.Join(l.wrong, "\n"))
		})
	}
	t.Logf("%d requests ended in %d lives; %d were lost with queues that overran", ends, rounds, excused)
	if ends < int(rounds)*20 {
		t.Error("there was hardly any traffic")
	}
}

// runLife runs a life in a bubble of its own.
func runLife(t *testing.T, seed uint64, script []string) (l *world) {
	synctest.Test(t, func(t *testing.T) { l = live(seed, script) })
	return l
}

// randomScript is a few faults.
func randomScript(rng *rand.Rand) []string {
	pick := func(s ...string) string { return s[rng.IntN(len(s))] }
	where := func() string {
		s := ""
		if rng.IntN(2) == 0 {
			s = fmt.Sprintf(" %d", 1+rng.IntN(20))
		}
		if rng.IntN(3) == 0 {
			s += " times=" + pick("2", "7", "30", "forever")
		}
		if rng.IntN(3) > 0 {
			s += pick(" device=sim0", " device=sim1")
		}
		return s
	}
	after := func() string { return fmt.Sprintf("time %dus device=%s: ", 1+rng.IntN(20000), pick("sim0", "sim1")) }
	var lines []string
	for range rng.IntN(7) {
		lines = append(lines, []func() string{
			func() string { return "request" + where() + ": drop" },
			func() string { return "request" + where() + pick(": delay 30us", ": delay 3ms", ": delay 200ms") },
			func() string { return "request" + where() + pick(": behind 1", ": behind 3 at-most=1ms") },
			func() string { return "request" + where() + pick(": not-ready timer=1", ": not-ready timer=12") },
			func() string {
				return fmt.Sprintf("request%s: fail syndrome=%#x vendor=0x7", where(), 1+rng.IntN(255))
			},
			func() string { return "completion" + where() + pick(": hold", ": hold 20us", ": hold 50ms") },
			func() string {
				return fmt.Sprintf("completion %d%s: overrun", 10+rng.IntN(60), pick("", " device=sim0"))
			},
			func() string { return "event" + where() + pick(": lose", ": duplicate", ": delay 10us", ": delay 7ms") },
			func() string { return "async" + where() + pick(": lose", ": duplicate", ": delay 10us", ": delay 7ms") },
			func() string { return "ioctl" + where() + pick(": slow 10us", ": slow 5ms") },
			func() string {
				return fmt.Sprintf("ioctl %d method=IB_USER_VERBS_CMD_MODIFY_QP: refuse ENOMEM", 1+rng.IntN(30))
			},
			func() string { return after() + pick("port 1 down", "port 1 up") },
			func() string { return after() + fmt.Sprintf("gid 1 %d none", rng.IntN(4)) },
			func() string {
				n := rng.IntN(2) // addresses of its own
				return fmt.Sprintf("time %dus device=sim%d: gid 1 %d fd00::%d roce2", 1+rng.IntN(20000), n, rng.IntN(4), 1+n)
			},
			func() string { return after() + "fatal" },
		}[rng.IntN(15)]())
	}
	return lines
}
