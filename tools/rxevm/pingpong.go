//go:build linux

package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A player is one of the two programs that play ping-pong.
type player []string

var (
	playVerbs player = []string{"verbs", "pingpong"}
	playRDMA  player = []string{"ibv_rc_pingpong"}
)

// String names the player.
func (p player) String() string { return strings.Join(p, " ") }

// A game is one ping-pong between two players in the guest.
type game struct {
	server, client player
	events         bool // sleep instead of polling
	size, iters    int
	check          bool // compare the payload
	timeout        time.Duration
}

// String describes the game.
func (g game) String() string {
	mode := "busy"
	if g.events {
		mode = "-e"
	}
	return fmt.Sprintf("%v answers %v, %s, %d bytes, %d iterations", g.server, g.client, mode, g.size, g.iters)
}

// gameMTU is the path MTU that both programs use unless told otherwise.
const gameMTU = 1024

// packets is the number of data packets that the game must put on the link: every message of both
// sides, in MTU-sized pieces.
func (g game) packets() uint64 {
	perMessage := max(1, (g.size+gameMTU-1)/gameMTU)
	return uint64(2 * g.iters * perMessage)
}

// A score is what a game came to.
type score struct {
	usecPerIter float64 // by the client's clock
	sent, recvd uint64  // packets, by soft-RoCE's counters
	output      string  // both sides' output, for reports of failures
}

var usecLine = regexp.MustCompile(`iters in .* = ([0-9.]+) usec/iter`)

// play plays one game. An error says which side failed and carries the output of both.
func (v *vm) play(ctx context.Context, g game, port uint16) (score, error) {
	before, err := v.packetCounters(ctx)
	if err != nil {
		return score{}, err
	}
	args := []string{"-d", "rxe0", "-g", "1", "-p", strconv.Itoa(int(port)), "-s", strconv.Itoa(g.size), "-n", strconv.Itoa(g.iters)}
	if g.events {
		args = append(args, "-e")
	}
	if g.check {
		args = append(args, "-c")
	}
	server := job{Args: append(g.server[:len(g.server):len(g.server)], args...), Env: v.environ()}
	client := job{Args: append(append(g.client[:len(g.client):len(g.client)], args...), guestAddr), Env: v.environ(), Listen: port}
	d, err := v.duet(ctx, server, client, g.timeout)
	s := score{output: fmt.Sprintf("server (%v):\n%s%sclient (%v):\n%s%s", g.server, d[0].stdout.String(), d[0].stderr.String(), g.client, d[1].stdout.String(), d[1].stderr.String())}
	if err != nil {
		return s, fmt.Errorf("%v: %w%s", g, err, indented(s.output))
	}
	after, err := v.packetCounters(ctx)
	if err != nil {
		return s, err
	}
	s.sent, s.recvd = after[0]-before[0], after[1]-before[1]
	if want := g.packets(); s.sent < want || s.recvd < want {
		return s, fmt.Errorf("%v: soft-RoCE counted %d packets sent and %d received, the sizes ask for at least %d", g, s.sent, s.recvd, want)
	}
	m := usecLine.FindStringSubmatch(d[1].stdout.String())
	if m == nil {
		return s, fmt.Errorf("%v: the client printed no time per iteration%s", g, indented(s.output))
	}
	if s.usecPerIter, err = strconv.ParseFloat(m[1], 64); err != nil {
		return s, fmt.Errorf("%v: %w", g, err)
	}
	return s, nil
}

// packetCounters reads soft-RoCE's counters of packets sent and received.
func (v *vm) packetCounters(ctx context.Context) (counts [2]uint64, err error) {
	for i, name := range []string{"sent_pkts", "rcvd_pkts"} {
		text, err := v.readFile(ctx, "/sys/class/infiniband/rxe0/ports/1/hw_counters/"+name)
		if err != nil {
			return counts, err
		}
		if counts[i], err = strconv.ParseUint(strings.TrimSpace(text), 10, 64); err != nil {
			return counts, err
		}
	}
	return counts, nil
}
