package pingpong

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The text is the one that ibv_rc_pingpong printed for the same figures; the
// keys of the JSON are a promise.
func TestReport(t *testing.T) {
	r := Report{
		Role: "client", Device: "rxe0", Port: 1, GIDIndex: 1, MTU: 1024, Size: 4096, Iters: 1000, Events: true,
		Local: reportAddress(someAddress), Remote: reportAddress(Address{LID: 7, QPN: 8, PSN: 9}), PayloadChecked: true,
	}
	r.time(11050180 * time.Microsecond)
	var b bytes.Buffer
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	const text = "8192000 bytes in 11.05 seconds = 5.93 Mbit/sec\n1000 iters in 11.05 seconds = 11050.18 usec/iter\n"
	if d := cmp.Diff(text, b.String()); d != "" {
		t.Error(d)
	}
	b.Reset()
	r.time(2 * time.Second)
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	const json = `{"role":"client","device":"rxe0","port":1,"gid_index":1,"mtu":1024,"size":4096,"iters":1000,"events":true,` +
		`"seconds":2,"mbit_per_sec":32.768,"usec_per_iter":2000,` +
		`"local":{"lid":0,"qpn":17,"psn":1164291,"gid":"::ffff:10.0.0.1"},"remote":{"lid":7,"qpn":8,"psn":9,"gid":"::"},"payload_checked":true}` + "\n"
	if d := cmp.Diff(json, b.String()); d != "" {
		t.Error(d)
	}
}

// A game that takes no time that the clock can see has finite figures: JSON has
// no other ones.
func TestReportWithoutTime(t *testing.T) {
	r := Report{Size: 1 << 30, Iters: 1<<31 - 1}
	r.time(0)
	if err := r.WriteJSON(new(bytes.Buffer)); err != nil {
		t.Error(err)
	}
	if r.bytes() <= 0 {
		t.Errorf("%d bytes", r.bytes())
	}
}
