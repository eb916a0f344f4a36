package main

import (
	"os"
	"testing"
)

// refereeVar asks for all cases of the referee, by both users, with the value all. They take
// minutes. Otherwise they are those for every day.
const refereeVar = "GOVERBS_REFEREE"

// Debian's ibv_devinfo sees the devices as they are.
func TestDevinfo(t *testing.T) { playAll(t, devinfoCases()) }

// Ping-pongs are C against C, Go against C in both roles, and Go against Go.
func TestPingpong(t *testing.T) { playAll(t, append(pingpongCases(), mixedCases()...)) }

// Debian's perftest runs too, with all its ways to use queue pairs.
func TestPerftest(t *testing.T) { playAll(t, perftestCases()) }

func playAll(t *testing.T, cases []refereeCase) {
	for _, u := range users() {
		for _, c := range cases {
			if os.Getenv(refereeVar) != "all" && (!c.short || u.id == nobodyID && !c.everybody) {
				continue
			}
			t.Run(u.name+" "+c.name(), func(t *testing.T) { play(t, u, &c) })
		}
	}
}

// play plays a case to its end.
func play(t *testing.T, u user, c *refereeCase) {
	reachable(t, u, program(t, "mlx5sim"))
	for range steadyTries {
		args, err := c.arguments(port(t), func(name string) ([]string, error) {
			begin := []string{program(t, "verbs")}
			if name != "verbs" {
				begin = tool(t, name)
			}
			reachable(t, u, begin[len(begin)-1])
			return begin, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		out, code := simulated(t, u, args...)
		if unsteady(out, code) {
			t.Logf("again: %s", out)
			continue
		}
		if err := c.judge(out, code); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	t.Errorf("perftest found no steady clock in %d tries", steadyTries)
}
