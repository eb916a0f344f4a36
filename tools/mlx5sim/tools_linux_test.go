package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Debian's ibv_devinfo sees the devices as they are.
func TestDevinfo(t *testing.T) {
	devinfo := tool(t, "ibv_devinfo")
	for _, u := range users() {
		for _, c := range []struct {
			flags string
			want  []string
		}{
			{"", []string{"hca_id:\tmlx5_0", "transport:\t\t\tInfiniBand", "PORT_ACTIVE", "link_layer:\t\tInfiniBand"}},
			{"-devices 3 -ports 2 -link eth", []string{"hca_id:\tmlx5_2", "port:\t2", "link_layer:\t\tEthernet", "RoCE v2", "phys_port_cnt:\t\t\t2"}},
			{"-nomount -devices 2 -uar static", []string{"hca_id:\tmlx5_1", "PORT_ACTIVE"}},
		} {
			t.Run(u.name+" "+c.flags, func(t *testing.T) {
				reachable(t, u, devinfo)
				reachable(t, u, program(t, "mlx5sim"))
				out, code := simulated(t, u, append(strings.Fields(c.flags), "--", devinfo, "-v")...)
				if code != 0 {
					t.Fatalf("status %d: %s", code, out)
				}
				for _, w := range c.want {
					if !strings.Contains(out, w) {
						t.Errorf("no %q in\n%s", w, out)
					}
				}
			})
		}
	}
}

// game is a ping-pong of two programs. PORT is put in; a name without a slash is
// looked up, and verbs is ours.
type game struct {
	flags, server, client string
	// always: played also when not all are asked for, and everybody: as nobody then too.
	everybody, always bool
}

// refereeVar asks for all games, by both users, with the value all. They take a minute.
const refereeVar = "GOVERBS_REFEREE"

// games are C against C, Go against C in both roles, and Go against Go.
func games() []game {
	var all []game
	for _, kind := range []string{"rc", "uc", "ud", "srq"} {
		p := "ibv_" + kind + "_pingpong -p PORT"
		// Programs that spin share the processors with who looks for their doorbells.
		few, check := " -n 20", " -c"
		rc := kind == "rc"
		all = append(all,
			game{"", p + few + check, p + few + check + " localhost", false, rc},
			game{"", p + " -e", p + " -e localhost", rc, true},
			game{"-link eth -devices 2", p + " -e -d mlx5_0 -g 1", p + " -e -d mlx5_1 -g 1 localhost", false, rc},
			game{"-uar static", p + " -e", p + " -e localhost", false, rc},
			game{"-nomount", p + " -e", p + " -e localhost", rc, rc})
	}
	// With one queue pair and one completion queue no doorbell hides another.
	const strict = "ibv_rc_pingpong -p PORT -n 20 -c"
	all = append(all, game{"-strict", strict, strict + " localhost", false, false})
	const ours, theirs = "verbs pingpong -p PORT -n 20 -c", "ibv_rc_pingpong -p PORT -n 20 -c"
	for _, flags := range []string{"", "-link eth", "-uar static", "-nomount"} {
		plain := flags == ""
		everybody := plain || flags == "-nomount"
		all = append(all,
			game{flags, ours + " -g 0", theirs + " -g 0 localhost", everybody, plain},
			game{flags, theirs + " -g 0", ours + " -g 0 localhost", everybody, plain},
			game{flags, ours + " -e", ours + " -e localhost", plain, true})
	}
	// Without a GID, as ibv_rc_pingpong plays on InfiniBand unless it is told otherwise.
	all = append(all, game{"", theirs, ours + " localhost", false, true})
	return all
}

func TestPingpong(t *testing.T) {
	for _, u := range users() {
		for _, g := range games() {
			if os.Getenv(refereeVar) != "all" && (!g.always || u.id == nobodyID && !g.everybody) {
				continue
			}
			t.Run(fmt.Sprintf("%s %s: %s against %s", u.name, g.flags, g.server, g.client), func(t *testing.T) { play(t, u, g) })
		}
	}
}

// play plays a game to its end.
func play(t *testing.T, u user, g game) {
	out, code := twoPrograms(t, u, g.flags, g.server, g.client)
	if code != 0 || strings.Count(out, " iters in ") != 2 {
		t.Errorf("status %d: %s", code, out)
	}
}

// twoPrograms runs a server and a client, in whose lines PORT is put in.
func twoPrograms(t *testing.T, u user, flags, server, client string) (out string, code int) {
	t.Helper()
	p := port(t)
	args := append(strings.Fields(flags), "-wait", patience.String(), "--")
	for i, line := range []string{server, client} {
		w := strings.Fields(strings.ReplaceAll(line, "PORT", p))
		if w[0] == "verbs" {
			w[0] = program(t, w[0])
		} else {
			w[0] = tool(t, w[0])
		}
		reachable(t, u, w[0])
		if i > 0 {
			args = append(args, "--and")
		}
		args = append(args, w...)
	}
	return simulated(t, u, args...)
}
