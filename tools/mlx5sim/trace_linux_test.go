package main

import (
	"fmt"
	"regexp"
	"testing"
)

// The trace of ibv_rc_pingpong: each of the two sends as often as it plays, receives as
// often, and nothing fails.
func TestTrace(t *testing.T) {
	const rounds = 20
	game := append(tool(t, "ibv_rc_pingpong"), "-e", "-p", port(t), "-n", fmt.Sprint(rounds))
	args := append([]string{"-trace", "-wait", patience.String(), "--"}, game...)
	args = append(append(append(args, "--and"), game...), "localhost")
	out, code := simulated(t, me(), args...)
	if code != 0 {
		t.Fatalf("status %d: %s", code, out)
	}
	count := func(pattern string) map[string]int {
		n := make(map[string]int)
		for _, m := range regexp.MustCompile(`(?m)^mlx5sim: \d+\.\d{6} (pid \d+) mlx5_0: `+pattern).FindAllStringSubmatch(out, -1) {
			n[m[1]]++
		}
		return n
	}
	for _, c := range []struct {
		pattern string
		times   int
	}{
		{`WQE \d+ of QP 0x[0-9a-f]+: SEND of 4096 bytes to QP 0x[0-9a-f]+, signaled: carried out$`, rounds},
		{`CQE \d+ of CQ 0x[0-9a-f]+: SEND of QP 0x[0-9a-f]+ wqe \d+: ok$`, rounds},
		{`CQE \d+ of CQ 0x[0-9a-f]+: receive of QP 0x[0-9a-f]+ wqe \d+: ok, 4096 bytes, from QP 0x[0-9a-f]+$`, rounds},
		{`WQE `, rounds},
		{`CQE `, 2 * rounds},
		{`ioctl DEVICE.INVOKE_WRITE CREATE_COMP_CHANNEL: ok, made channel descriptor \d+$`, 1},
		{`QP 0x[0-9a-f]+: RESET to INIT$`, 1},
		{`QP 0x[0-9a-f]+: INIT to RTR$`, 1},
		{`QP 0x[0-9a-f]+: RTR to RTS$`, 1},
		{`ioctl DEVICE.GET_CONTEXT: ok`, 1},
		{`ioctl CQ.CQ_CREATE: ok, made CQ 0x[0-9a-f]+ handle \d+$`, 1},
		{`ioctl QP.QP_CREATE: ok, of PD handle \d+, .*, made QP 0x[0-9a-f]+ handle \d+$`, 1},
	} {
		got := count(c.pattern)
		if len(got) != 2 {
			t.Errorf("%s: of %d programs, want 2: %v", c.pattern, len(got), got)
		}
		for pid, n := range got {
			if n != c.times {
				t.Errorf("%s: %d of %s, want %d", c.pattern, n, pid, c.times)
			}
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}
