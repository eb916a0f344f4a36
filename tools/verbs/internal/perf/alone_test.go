package perf

import (
	"net"
	"runtime"
	"slices"
	"testing"
)

// A loop that polls has one processor while it runs, and leaves as many as there were. One that
// waits for events, whose other side runs beside it, or that has nothing to do, takes none away.
func TestAlone(t *testing.T) {
	const all = 3
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(all))
	for name, c := range map[string]struct {
		cfg  Config
		want int
	}{
		"busy":     {Config{Wait: Busy, Server: "there"}, 1},
		"server":   {Config{Wait: Busy, Test: Test{Verb: Send}}, 1},
		"events":   {Config{Wait: Event, Server: "there"}, all},
		"adaptive": {Config{Wait: Adaptive, Server: "there"}, all},
		"together": {Config{Wait: Busy, Server: "there", Together: true}, all},
		"target":   {Config{Wait: Busy, Test: Test{Verb: Read}}, all},
	} {
		restore := (&Side{cfg: c.cfg}).alone(0)
		if n := runtime.GOMAXPROCS(0); n != c.want {
			t.Errorf("%s: %d processors while it runs, want %d", name, n, c.want)
		}
		restore()
		if n := runtime.GOMAXPROCS(0); n != all {
			t.Errorf("%s: %d processors afterwards, want %d", name, n, all)
		}
	}
}

// noting notes how many processors there are whenever a side says something.
type noting struct {
	net.Conn
	processors []int
}

func (c *noting) Write(b []byte) (int, error) {
	c.processors = append(c.processors, runtime.GOMAXPROCS(0))
	return c.Conn.Write(b)
}

// From before the other side begins to after the last message a measurement is alone: what
// that takes is no part of the first message's time.
func TestMeasuresAlone(t *testing.T) {
	const all = 3
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(all))
	c := config(t, "read_bw", func(c *Config) { c.Warmup = 0 })
	a, b := openPair(t, fabric(t), c, c)
	a.cfg.Together = false // the other side does nothing
	here, there := net.Pipe()
	conn, done := &noting{Conn: here}, make(chan played)
	go func() { done <- b.play(t.Context(), there, nil) }()
	pa := a.play(t.Context(), conn, nil)
	if pb := <-done; pa.err != nil || pb.err != nil {
		t.Fatal(pa.err, pb.err)
	}
	want := []int{all, 1, 1, 1} // the offer; and that it is ready, has sent, and its result
	if got := conn.processors; !slices.Equal(got, want) {
		t.Errorf("processors by message: %v, want %v", got, want)
	}
	if n := runtime.GOMAXPROCS(0); n != all {
		t.Errorf("%d processors afterwards, want %d", n, all)
	}
}
