package plural

import "testing"

func TestOf(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Of(0, "round"), "0 rounds"},
		{Of(1, "round"), "1 round"},
		{Of(int64(2), "queue pair"), "2 queue pairs"},
		{Of(uint64(1), "flush"), "1 flush"},
		{Of(3, "flush"), "3 flushes"},
		{Of(3, "process"), "3 processes"},
		{Of(3, "latency"), "3 latencies"},
		{Of(3, "way"), "3 ways"},
		{Of(-1, "message"), "-1 messages"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
