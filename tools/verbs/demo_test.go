package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/sim"
)

// fabricSystem is a machine whose devices are those of a fabric, as real ones.
type fabricSystem struct {
	t      *testing.T
	fabric *sim.Fabric
	err    error            // of listing
	broken map[string]error // devices that do not open
}

func newFabricSystem(t *testing.T, devices ...model.DeviceConfig) *fabricSystem {
	t.Helper()
	f, err := sim.New(&sim.Options{Devices: devices})
	if err != nil {
		t.Fatal(err)
	}
	return &fabricSystem{t: t, fabric: f}
}

func (s *fabricSystem) devices() ([]uverbs.DeviceInfo, error) {
	if s.err != nil {
		return nil, s.err
	}
	list, err := s.fabric.Devices()
	for i := range list {
		list[i].Err = s.broken[list[i].Name]
	}
	return list, err
}

func (s *fabricSystem) open(name string) (*uverbs.Device, error) {
	if s.err != nil {
		return nil, s.err
	}
	return s.fabric.Open(name, nil)
}

// nothingLeft fails the test when a device holds something.
func (s *fabricSystem) nothingLeft() {
	s.t.Helper()
	for _, d := range s.fabric.Model().Devices() {
		if left := d.Objects(); len(left) > 0 {
			s.t.Errorf("left on %s: %v", d.Name(), left)
		}
	}
}

// noDevices is a machine without any.
func noDevices() *fabricSystem {
	return &fabricSystem{err: fmt.Errorf("goverbs: %w: nothing there", uverbs.ErrNoDevices)}
}

// runDemo runs the command on a system.
func runDemo(from system, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = demo(context.Background(), from, args, &out, &errs)
	return code, out.String(), errs.String()
}

const (
	onModelLine = `sim0 and sim1, a ConnectX in software (the model). Success proves the library's ConnectX data path, against a model that is as strict with every WQE, CQE, doorbell and request as hardware and driver; no silicon, no kernel, no network.`
	lastLine    = `The same on a real kernel: go run ./tools/rxevm demo`
)

var (
	aTime = regexp.MustCompile(`\b[0-9.]+(ns|µs|ms|s)\b`)
	// A clock that is too coarse, as that of Windows, gives no median.
	roundTrip = regexp.MustCompile(`TIME on average \(.*\)|median TIME, p99 TIME`)
)

// withoutTimes is a text with TIME for every time.
func withoutTimes(text string) string {
	return roundTrip.ReplaceAllString(aTime.ReplaceAllString(text, "TIME"), "TIMES")
}

// demoLines is what a demo prints between its first and last lines.
func demoLines(rounds int, where, vendor, last string) string {
	return fmt.Sprintf(`ok   busy ping-pong: %[1]d round trips of 64 bytes, all checked: TIMES; %[2]s, not a network latency
ok   event ping-pong: %[1]d round trips of 64 bytes, all checked: TIMES; %[2]s, not a network latency
ok   RDMA READ: 16 reads of 4096 bytes behind one doorbell, every byte checked: TIME in all
ok   injected error: a READ with a wrong rkey was refused, the READ behind it flushed, the queue pair is in ERR
     status          remote access error (10)
%[3]s     it means        The peer refused access to its memory: the rkey does not match, does not cover the remote address and length, or does not permit the operation.
     look first      Check that the peer's region is still registered: an rkey used after deregistration or invalidation is the most common cause.
ok   afterwards: %[4]s
`+lastLine+"\n", rounds, where, vendor, last)
}

const (
	vendorLine = "     vendor syndrome 0x88: the peer answered: remote access error\n"
	nothingOf  = "0 rules broken that hardware would not notice, 0 objects left on the devices"
)

func TestDemoOnModel(t *testing.T) {
	steps := demoLines(50, "in one process", vendorLine, nothingOf)
	for _, c := range []struct {
		args  []string
		first string
	}{
		{nil, onModelLine + "\n     (there is no RDMA device here)\n"},
		{[]string{"-d", "sim0"}, onModelLine + "\n"},
		{[]string{"-d", "sim1"}, strings.Replace(onModelLine, "sim0 and sim1", "sim1 and sim0", 1) + "\n"},
	} {
		code, out, errs := runDemo(noDevices(), append(c.args, "-n", "50")...)
		if got := withoutTimes(out); code != 0 || errs != "" || got != c.first+steps {
			t.Errorf("%q: status %d, stderr %q, got\n%s\nwant\n%s", c.args, code, errs, got, c.first+steps)
		}
	}
}

func TestDemoJSON(t *testing.T) {
	code, out, errs := runDemo(noDevices(), "-json", "-n", "7")
	var r demoReport
	d := json.NewDecoder(strings.NewReader(out))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil || code != 0 || errs != "" {
		t.Fatalf("status %d, %v, stderr %q:\n%s", code, err, errs, out)
	}
	if r.Devices != [2]string{"sim0", "sim1"} || !r.Model || !r.OK || r.Proves != modelProves || r.Next != realKernel || len(r.WhyNot) != 1 || len(r.Steps) != demoSteps {
		t.Fatalf("%+v", r)
	}
	for i, s := range r.Steps {
		if !s.OK || s.Text == "" || s.Error != "" {
			t.Errorf("%+v", s)
		}
		if times := s.MedianUsec != nil && s.P99Usec != nil && s.MeanUsec != nil; times != (i < 2) || times && (s.Rounds != 7 || s.Bytes != 64 || *s.P99Usec < *s.MedianUsec) {
			t.Errorf("%+v", s)
		}
	}
	if e := r.Steps[3]; *e.Status != 10 || *e.VendorSyndrome != 0x88 || e.Vendor == "" || e.Means == "" || len(e.Look) < 2 {
		t.Errorf("%+v", e)
	}
	if a := r.Steps[4]; *a.Violations != 0 || *a.ObjectsLeft != 0 {
		t.Errorf("%+v", a)
	}
}

// A real device is looped back, the first that can be used.
func TestDemoOnDevice(t *testing.T) {
	down := model.DeviceConfig{Name: "mlx5_1", Ports: []model.PortConfig{{Down: true}, {Down: true}}}
	up := model.DeviceConfig{Name: "mlx5_2", Ports: []model.PortConfig{{Down: true}, {}}}
	s := newFabricSystem(t, model.DeviceConfig{Name: "mlx5_0"}, down, up)
	s.broken = map[string]error{"mlx5_0": fmt.Errorf("goverbs: mlx5_0: %w", syscall.EACCES)}
	first := "mlx5_2, a real device. Success proves the library with this kernel's driver and this device, between two queue pairs of it; no network.\n"
	steps := demoLines(20, "looped back in the device", vendorLine, "everything is given back to the kernel")
	for _, c := range []struct {
		args []string
		why  string
	}{
		{nil, "     (goverbs: mlx5_0: permission denied)\n     (mlx5_1: no port is up (verbs devinfo -d mlx5_1 tells their states))\n"},
		{[]string{"-d", "mlx5_2"}, ""},
	} {
		code, out, errs := runDemo(s, append(c.args, "-n", "20")...)
		if got, want := withoutTimes(out), first+c.why+steps; code != 0 || errs != "" || got != want {
			t.Errorf("%q: status %d, stderr %q, got\n%s\nwant\n%s", c.args, code, errs, got, want)
		}
	}
	s.nothingLeft()

	// None can be used: the model, and why.
	s.broken["mlx5_2"] = errors.New("mlx5_2: in use")
	code, out, errs := runDemo(s, "-n", "1")
	if code != 0 || errs != "" || !strings.HasPrefix(out, onModelLine+"\n     (goverbs: mlx5_0: permission denied)\n") || !strings.Contains(out, "\n     (mlx5_2: in use)\nok ") {
		t.Errorf("status %d, stderr %q:\n%s", code, errs, out)
	}
	s.err = errors.New("goverbs: list the devices: no netlink")
	if code, out, _ := runDemo(s, "-n", "1"); code != 0 || !strings.HasPrefix(out, onModelLine+"\n     (goverbs: list the devices: no netlink)\nok ") {
		t.Errorf("status %d:\n%s", code, out)
	}
}

// A step that does not hold is told, ends the demo and makes its status 1; all is
// given back even so.
func TestDemoFailures(t *testing.T) {
	for _, c := range []struct{ script, want string }{
		{"request 3: fail syndrome=0x13 vendor=0x88", "\nFAIL busy ping-pong: "},
		{"request 21 : fail syndrome=0x04 vendor=0x51", "\nFAIL event ping-pong: "},
		{"request 45: fail syndrome=0x13 vendor=0x88", "\nFAIL RDMA READ: "},
		// It ends before it is tried, as what it is not.
		{"request 57: fail syndrome=0x12 vendor=0x8a", "\nFAIL injected error: the READ with a wrong key ended as \"remote invalid request\" and the one behind it as \"flushed\": want \"remote access error\" and \"flushed\"\n     status          remote invalid request (9)\n"},
		{"ioctl method=UVERBS_METHOD_QP_CREATE: refuse ENOMEM", "\nFAIL connect two queue pairs: "},
	} {
		s := newFabricSystem(t, model.DeviceConfig{Name: "mlx5_0"})
		if err := s.fabric.Model().Script(c.script); err != nil {
			t.Fatal(err)
		}
		code, out, errs := runDemo(s, "-d", "mlx5_0", "-n", "10")
		if code != 1 || errs != "" || !strings.Contains(out, c.want) || !strings.HasSuffix(out, lastLine+"\n") || strings.Contains(out, "FAIL afterwards") {
			t.Errorf("%s: status %d, stderr %q:\n%s", c.script, code, errs, out)
		}
		s.nothingLeft()
		if broken := s.fabric.Model().Violations(); len(broken) > 0 {
			t.Error(broken)
		}
	}
}

// A device that dies in the middle fails the step after.
func TestDemoDeviceDies(t *testing.T) {
	s := newFabricSystem(t, model.DeviceConfig{Name: "mlx5_0"})
	out := &stopper{when: "ok   busy", stop: s.fabric.Model().Device("mlx5_0").Fail}
	var errs bytes.Buffer
	code := demo(t.Context(), s, []string{"-n", "5"}, out, &errs)
	if got := out.seen.String(); code != 1 || errs.Len() > 0 || !strings.Contains(got, "\nFAIL event ping-pong: ") || !strings.HasSuffix(got, lastLine+"\n") {
		t.Errorf("status %d, stderr %q:\n%s", code, errs.String(), got)
	}
}

// What is left on the model is not called given back.
func TestDemoFindsLeak(t *testing.T) {
	st, err := onModel("sim0", nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := st.from.open("sim1")
	if err != nil {
		t.Fatal(err)
	}
	if err := st.check(new(demoStep)); err == nil || !strings.Contains(err.Error(), "left on the devices") {
		t.Errorf("an open device: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := st.check(new(demoStep)); err != nil {
		t.Error(err)
	}
}

func TestDemoRefusals(t *testing.T) {
	some := newFabricSystem(t, model.DeviceConfig{Name: "mlx5_0", Ports: []model.PortConfig{{Down: true}}})
	for _, c := range []struct {
		from *fabricSystem
		args string
		code int
		want string
	}{
		{some, "-x", 2, "there is no flag -x\nverbs demo -h lists the flags."},
		{some, "mlx5_0", 2, `unexpected argument "mlx5_0"`},
		{some, "-n 0", 2, "number of rounds (-n) 0: allowed are 1 to 1000000"},
		{some, "-n 1000001", 2, "number of rounds (-n) 1000001: allowed are 1 to 1000000"},
		{some, "-n many", 2, `invalid value "many"`},
		{some, "-d=", 2, "-d has nothing in it"},
		{some, "-d mlx5_7", 2, `no such device: "mlx5_7": there are mlx5_0`},
		{some, "-d sim2", 2, `no such device: "sim2"`},
		{some, "-d mlx5_0", 1, "mlx5_0: no port is up"},
		{noDevices(), "-d mlx5_0", 2, "no device \"mlx5_0\": goverbs: no RDMA devices: nothing there; sim0 and sim1 are a ConnectX in software\n"},
	} {
		code, out, errs := runDemo(c.from, strings.Fields(c.args)...)
		if code != c.code || out != "" || !strings.HasPrefix(errs, "verbs demo: ") || !strings.Contains(errs, c.want) {
			t.Errorf("%s: status %d, stdout %q, stderr %q, want %d and %q", c.args, code, out, errs, c.code, c.want)
		}
	}
	some.nothingLeft()
	code, out, errs := runDemo(noDevices(), "-h")
	if code != 0 || errs != "" || !strings.HasPrefix(out, "usage: verbs demo") || !strings.Contains(out, "-json") || !strings.Contains(out, "sim0 and sim1 are a ConnectX in software") {
		t.Errorf("status %d, %q, %q", code, out, errs)
	}
	var refused bytes.Buffer
	for _, json := range []string{"-json=false", "-json"} {
		refused.Reset()
		if code := demo(context.Background(), noDevices(), []string{json, "-n", "1"}, full{}, &refused); code != 1 || !strings.Contains(refused.String(), "no space left") {
			t.Errorf("%s to a full disk: status %d, %q", json, code, refused.String())
		}
	}
}

// stopper is a writer that calls stop when it reads a text.
type stopper struct {
	when string
	stop func()
	seen strings.Builder
}

func (s *stopper) Write(p []byte) (int, error) {
	s.seen.Write(p)
	if strings.Contains(s.seen.String(), s.when) {
		s.stop()
	}
	return len(p), nil
}

// Ctrl-C ends it anywhere, and leaves nothing.
func TestDemoInterrupted(t *testing.T) {
	for _, when := range []string{"", "real device", "ok   busy", "ok   event", "ok   RDMA"} {
		s := newFabricSystem(t, model.DeviceConfig{Name: "mlx5_0"})
		ctx, stop := context.WithCancel(context.Background())
		out := &stopper{when: when, stop: stop}
		var errs bytes.Buffer
		code := demo(ctx, s, []string{"-n", "30"}, out, &errs)
		stop()
		if code != 1 || errs.String() != "verbs demo: interrupted\n" || strings.Contains(out.seen.String(), "FAIL") || !strings.HasSuffix(out.seen.String(), lastLine+"\n") {
			t.Errorf("%q: status %d, stderr %q:\n%s", when, code, errs.String(), out.seen.String())
		}
		s.nothingLeft()
	}
}

// asleep runs a demo whose event ping-pong sleeps for ever, since events are lost.
func asleep(ctx context.Context, t *testing.T, then func()) (code int, stdout, stderr string) {
	s := newFabricSystem(t, model.DeviceConfig{Name: "mlx5_0"})
	if err := s.fabric.Model().Script("event times=forever: lose"); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	ended := make(chan int)
	go func() { ended <- demo(ctx, s, []string{"-n", "30"}, &out, &errs) }()
	synctest.Wait()
	then()
	code = <-ended
	s.nothingLeft()
	return code, out.String(), errs.String()
}

// Ctrl-C wakes who sleeps; nobody sleeps for ever.
func TestDemoAsleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		code, out, errs := asleep(ctx, t, stop)
		if code != 1 || errs != "verbs demo: interrupted\n" || !strings.Contains(out, "\nok   busy") || strings.Contains(out, " event ") {
			t.Errorf("status %d, stderr %q:\n%s", code, errs, out)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		code, out, errs := asleep(t.Context(), t, func() {})
		if code != 1 || errs != "" || !strings.Contains(out, "\nFAIL event ping-pong: no completion came for 1m0s\n"+"ok   afterwards: everything is given back to the kernel\n"+lastLine) {
			t.Errorf("status %d, stderr %q:\n%s", code, errs, out)
		}
	})
}

// A clock that does not see a round trip is not a round trip that takes no time.
func TestRoundTripText(t *testing.T) {
	var s demoStep
	s.roundTrips(append(make([]time.Duration, 100), 15*time.Millisecond))
	if want := "101 round trips of 64 bytes, all checked: 148.51µs on average (this system's clock is too coarse for a median)"; s.Text != want || *s.MedianUsec != 0 {
		t.Errorf("%q", s.Text)
	}
	s.roundTrips(append(slices.Repeat([]time.Duration{1500}, 100), 2_345_678, 2_345_678))
	if want := "102 round trips of 64 bytes, all checked: median 1.5µs, p99 2.35ms"; s.Text != want || *s.P99Usec != 2345.678 {
		t.Errorf("%q", s.Text)
	}
}

// A status that nobody knows is told, too.
func TestDemoUnknownStatus(t *testing.T) {
	step := demoStep{Name: "injected error", Error: "what is this"}
	step.explain(uverbs.WC{Status: 77, VendorErr: 0xee}, true)
	var out bytes.Buffer
	o := demoOutput{text: true, w: &out}
	o.step(step)
	want := "FAIL injected error: what is this\n     status          Status(77) (77)\n     vendor syndrome 0xee: " + step.Vendor + "\n     it means        InfiniBand defines no such status.\n"
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestGuestDemo(t *testing.T) {
	dev := guestOnly(t)
	var out, errs bytes.Buffer
	code := cmdDemo(t.Context(), []string{"-n", fmt.Sprint(guestIters())}, &out, &errs)
	want := dev.Name + ", a real device. Success proves the library with this kernel's driver and this device, between two queue pairs of it; no network.\n" +
		demoLines(guestIters(), "looped back in the device", "", "everything is given back to the kernel")
	if os.Getenv("GOVERBS_GUEST") == "5.10" {
		want = strings.NewReplacer(
			"was refused", "was not answered, as soft-RoCE of Linux 5.10 does it,",
			"remote access error (10)", "transport retry exceeded (12)",
			"The peer refused access to its memory: the rkey does not match, does not cover the remote address and length, or does not permit the operation.", "The peer did not acknowledge, and all retries timed out.",
			"Check that the peer's region is still registered: an rkey used after deregistration or invalidation is the most common cause.", "Is the peer process still alive? If it died or closed first, its log has the cause.",
		).Replace(want)
	}
	if got := withoutTimes(out.String()); code != 0 || errs.Len() > 0 || got != want {
		t.Errorf("status %d, stderr %q, got\n%s\nwant\n%s", code, errs.String(), got, want)
	}
}
