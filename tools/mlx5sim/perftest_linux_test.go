package main

import (
	"os"
	"testing"
)

// Debian's perftest runs too, with all its ways to use queue pairs. That takes a minute, so
// unless all games are asked for it is only the first two.
func TestPerftest(t *testing.T) {
	cases := []struct{ flags, line string }{
		{"", "ib_send_lat -e -n 100"},
		{"", "ib_read_bw -n 50"},
		{"", "ib_send_lat -n 50"},
		{"", "ib_send_bw -n 200"},
		{"", "ib_write_lat -n 50"},
		{"", "ib_write_bw -n 200"},
		{"", "ib_read_lat -n 50"},
		{"", "ib_read_bw -n 200"},
		{"", "ib_atomic_lat -n 50"},
		{"", "ib_atomic_bw -n 200"},
		{"", "ib_send_bw -e -n 200"},
		{"", "ib_read_bw -e -n 200"},
		{"", "ib_atomic_bw -e -n 200"},
		{"", "ib_send_lat -c UC -n 50"},
		{"", "ib_write_bw -c UC -n 200"},
		{"", "ib_send_bw -c UD -s 1024 -n 200"},
		{"", "ib_send_bw -b -n 200"},
		{"", "ib_write_bw -q 64 -n 50"},
		{"", "ib_send_bw --use-srq -q 8 -n 100"},
		{"", "ib_write_lat -I 64 -s 32 -n 50"},
		{"", "ib_read_bw -a -n 5"},
		{"-link eth", "ib_send_bw -x 1 -n 200"},
		{"-link eth -devices 2", "ib_write_bw -x 1 -n 200"},
		{"-uar static", "ib_send_lat -e -n 200"},
		{"-nomount", "ib_write_bw -n 200"},
	}
	if os.Getenv(refereeVar) != "all" {
		cases = cases[:2]
	}
	for _, c := range cases {
		t.Run(c.flags+" "+c.line, func(t *testing.T) {
			line := c.line + " -p PORT"
			if out, code := twoPrograms(t, me(), c.flags, line, line+" localhost"); code != 0 {
				t.Errorf("status %d: %s", code, out)
			}
		})
	}
}
