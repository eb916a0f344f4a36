package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goverbs/goverbs/tools/internal/plural"
)

// A refereeCase is one program, or a server and a client, that run on the model.
type refereeCase struct {
	kind  string // what it is about, as in rc or perftest
	flags string // of mlx5sim run
	// lines are the programs, in which PORT is put in. A name without a slash is looked up,
	// and verbs is ours.
	lines []string
	// shows is what is printed when all is well, besides ending with status 0: the first by
	// each program, the others by any.
	shows []string
	// short cases are those for every day, which go test runs too, and everybody's it
	// runs as an ordinary user as well.
	short, everybody bool
}

// name is what -run looks at and the report prints.
func (c *refereeCase) name() string {
	words := []string{c.kind, "ib", "dynamic"}
	flags := strings.Fields(c.flags)
	for i := 0; i < len(flags); i++ {
		switch flags[i] {
		case "-link":
			i++
			words[1] = flags[i]
		case "-uar":
			i++
			words[2] = flags[i]
		case "-devices", "-ports":
			words = append(words, flags[i+1]+" "+flags[i][1:])
			i++
		default:
			words = append(words, flags[i][1:])
		}
	}
	programs := make([]string, len(c.lines))
	for i, l := range c.lines {
		programs[i] = strings.TrimSuffix(strings.ReplaceAll(l, " -p PORT", ""), " localhost")
	}
	return strings.Join(words, ", ") + ": " + strings.Join(programs, " against ")
}

// arguments are those of mlx5sim run. The error is find's.
func (c *refereeCase) arguments(port string, find func(program string) ([]string, error)) ([]string, error) {
	args := append(strings.Fields(c.flags), "-wait", refereeLimit.String(), "--")
	for i, line := range c.lines {
		w := strings.Fields(strings.ReplaceAll(line, "PORT", port))
		begin, err := find(w[0])
		if err != nil {
			return nil, err
		}
		if i > 0 {
			args = append(args, "--and")
		}
		args = append(append(args, begin...), w[1:]...)
	}
	return args, nil
}

// judge says what is wrong with how the case ended.
func (c *refereeCase) judge(out string, code int) error {
	if code != 0 {
		return fmt.Errorf("exit status %d", code)
	}
	var missing []error
	want := len(c.lines)
	for _, s := range c.shows {
		if n := strings.Count(out, s); n < want {
			missing = append(missing, fmt.Errorf("%q is printed %s, want %d", s, plural.Of(n, "time"), want))
		}
		want = 1
	}
	return errors.Join(missing...)
}

// unsteady says whether perftest gave up because it could not find how fast the processor's
// clock ticks, which it tries before it measures and a loaded machine foils. That says nothing about
// the devices, so the case is played again, up to steadyTries times in all.
func unsteady(out string, code int) bool {
	return code != 0 && strings.Contains(out, "Can't produce a report")
}

const steadyTries = 8

// A fabric is a kind of port with a kind of register.
type fabric struct{ flags, gid string }

// fabrics are all four. RoCE needs a GID; InfiniBand's programs then know the port by its LID.
var fabrics = []fabric{
	{"", ""},
	{"-link eth", "1"},
	{"-uar static", ""},
	{"-link eth -uar static", "1"},
}

// pair is a case of two programs, of which the client is told where the server is.
func pair(kind, flags, server, client string, shows ...string) refereeCase {
	return refereeCase{kind: kind, flags: flags, lines: []string{server, client + " localhost"}, shows: shows}
}

// refereeCases are all that the referee plays.
func refereeCases() []refereeCase {
	all := devinfoCases()
	all = append(all, pingpongCases()...)
	all = append(all, mixedCases()...)
	return append(all, perftestCases()...)
}

// devinfoCases are those of who only looks.
func devinfoCases() []refereeCase {
	const line = "ibv_devinfo -v"
	return []refereeCase{
		{"devinfo", "", []string{line}, []string{"hca_id:\tmlx5_0", "transport:\t\t\tInfiniBand", "PORT_ACTIVE", "link_layer:\t\tInfiniBand"}, true, true},
		{"devinfo", "-devices 3 -ports 2 -link eth", []string{line}, []string{"hca_id:\tmlx5_2", "port:\t2", "link_layer:\t\tEthernet", "RoCE v2", "phys_port_cnt:\t\t\t2"}, true, true},
		{"devinfo", "-uar static", []string{line}, []string{"hca_id:\tmlx5_0", "PORT_ACTIVE"}, false, false},
		{"devinfo", "-link eth -uar static", []string{line}, []string{"link_layer:\t\tEthernet"}, false, false},
		{"devinfo", "-nomount -devices 2 -uar static", []string{line}, []string{"hca_id:\tmlx5_1", "PORT_ACTIVE"}, true, true},
	}
}

// played is what a ping-pong prints at its end.
const played = " iters in "

// Programs that spin share the processors with who looks for their doorbells, so they
// play few rounds, and check what they carried.
const few = " -n 20 -c"

// pingpongCases are rdma-core's against itself.
func pingpongCases() []refereeCase {
	var all []refereeCase
	for _, kind := range []string{"rc", "uc", "ud", "srq"} {
		p := "ibv_" + kind + "_pingpong -p PORT"
		rc := kind == "rc"
		add := func(flags, options string, short, everybody bool) {
			c := pair(kind, flags, p+options, p+options, played)
			c.short, c.everybody = short, everybody
			all = append(all, c)
		}
		for _, f := range fabrics {
			gid := ""
			if f.gid != "" {
				gid = " -g " + f.gid
			}
			plain := f.flags == ""
			add(f.flags, gid+few, plain && rc, false)
			add(f.flags, gid+" -e", plain || rc, plain && rc)
		}
		two := pair(kind, "-link eth -devices 2", p+" -e -d mlx5_0 -g 1", p+" -e -d mlx5_1 -g 1", played)
		two.short = rc
		all = append(all, two)
		add("-nomount", " -e", rc, rc)
	}
	// With one queue pair and one completion queue no doorbell hides another.
	const strict = "ibv_rc_pingpong -p PORT" + few
	return append(all, pair("rc", "-strict", strict, strict, played))
}

// mixedCases are Go against C in both roles, and Go against Go.
func mixedCases() []refereeCase {
	const ours, theirs = "verbs pingpong -p PORT", "ibv_rc_pingpong -p PORT"
	var all []refereeCase
	add := func(flags, server, client string, short, everybody bool) {
		c := pair("rc", flags, server, client, played)
		c.short, c.everybody = short, everybody
		all = append(all, c)
	}
	for _, flags := range []string{"", "-link eth", "-uar static", "-link eth -uar static", "-nomount"} {
		plain := flags == ""
		everybody := plain || flags == "-nomount"
		const gid = " -g 0" // on InfiniBand too, where it makes a global route header
		for _, how := range []string{few, " -e"} {
			spins := how == few
			add(flags, ours+how+gid, theirs+how+gid, plain && spins, everybody && spins)
			add(flags, theirs+how+gid, ours+how+gid, plain && spins, everybody && spins)
			add(flags, ours+how, ours+how, !spins, plain && !spins)
		}
	}
	// Without a GID, as ibv_rc_pingpong plays on InfiniBand unless it is told otherwise.
	add("", theirs+few, ours+few, true, false)
	add("", ours+few, theirs+few, false, false)
	return all
}

// perftestCases are all ways of perftest to use queue pairs. Its tests of latency are told
// the rounds, for the same reason as the ping-pongs.
func perftestCases() []refereeCase {
	const met, measured = " remote address: ", "#bytes" // of reads and atomics the server measures nothing
	var all []refereeCase
	add := func(f fabric, line string, short bool) {
		if f.gid != "" {
			line += " -x " + f.gid
		}
		c := pair("perftest", f.flags, line+" -p PORT", line+" -p PORT", met, measured)
		c.short = short
		all = append(all, c)
	}
	for _, f := range fabrics {
		for _, op := range []string{"send", "write", "read", "atomic"} {
			add(f, "ib_"+op+"_lat -n 50", false)
			add(f, "ib_"+op+"_bw -n 50", f.flags == "" && op == "read")
		}
	}
	for _, line := range []string{
		// Sleeping. Nothing completes at who is written to, so write has it not.
		"ib_send_lat -e -n 100",
		"ib_read_lat -e -n 50",
		"ib_atomic_lat -e -n 50",
		"ib_send_bw -e -n 200",
		"ib_read_bw -e -n 200",
		"ib_atomic_bw -e -n 200",
		"ib_send_lat -c UC -n 50",
		"ib_send_bw -c UC -n 200",
		"ib_write_lat -c UC -n 50",
		"ib_write_bw -c UC -n 200",
		"ib_send_lat -c UD -n 50",
		"ib_send_bw -c UD -s 1024 -n 200",
		"ib_send_bw --use-srq -q 8 -n 100",
		"ib_send_bw --use-srq -q 2 -e -n 100",
		"ib_send_bw -q 16 -n 50",
		"ib_write_bw -q 64 -n 50",
		"ib_read_bw -q 16 -n 50",
		"ib_atomic_bw -q 8 -n 50",
		"ib_atomic_bw -A CMP_AND_SWAP -n 50",
		"ib_send_lat -I 64 -s 32 -n 50",
		"ib_send_bw -I 64 -s 64 -n 200",
		"ib_write_lat -I 64 -s 32 -n 50",
		"ib_write_bw -I 128 -s 100 -n 200",
		"ib_send_bw -b -n 200",
		"ib_write_bw -b -n 200",
		"ib_read_bw -b -n 100",
		"ib_atomic_bw -b -n 100",
		"ib_send_bw -a -n 5",
		"ib_write_bw -a -n 5",
		"ib_read_bw -a -n 5",
	} {
		add(fabrics[0], line, line == "ib_send_lat -e -n 100")
	}
	// What a port or a register may make a difference to: addresses of datagrams, arming,
	// and many queue pairs on few registers.
	for _, f := range fabrics[1:] {
		for _, line := range []string{
			"ib_send_lat -e -n 100",
			"ib_send_bw -c UD -s 1024 -n 200",
			"ib_write_bw -c UC -n 200",
			"ib_send_bw --use-srq -q 8 -n 100",
			"ib_write_bw -q 64 -n 50",
			"ib_write_bw -I 128 -s 100 -n 200",
		} {
			add(f, line, false)
		}
	}
	add(fabric{"-link eth -devices 2", "1"}, "ib_write_bw -n 200", false)
	add(fabric{"-nomount", ""}, "ib_write_bw -n 200", false)
	return all
}
