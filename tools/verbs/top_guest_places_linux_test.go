package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/tools/verbs/internal/top"
	"github.com/goverbs/goverbs/tools/verbs/internal/top/trace"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/nldev"
)

// In a PID namespace of its own, with the /proc of another, verbs top does not
// take one process for another, and its probes still see its dumps.
func TestGuestTopPIDNamespace(t *testing.T) {
	dev := guestOnly(t)
	verbs := topProgram(t, "verbs")
	d, err := uverbs.Open(dev.Name, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	q, err := d.NewCQ(100, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), guestPatience)
	defer cancel()
	c := exec.CommandContext(ctx, verbs, "top", "-once", "-json", "-i", "0.2")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	out, err := c.Output()
	if errors.Is(err, syscall.EPERM) {
		t.Skip("declared skip: only root may make a PID namespace; run in the guest: rxevm test")
	}
	if err != nil {
		t.Fatal(err)
	}
	var l top.Look
	if err := json.Unmarshal(out, &l); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(l.Notes, func(s string) bool { return strings.HasPrefix(s, "/proc is not of this PID namespace") }) {
		t.Errorf("notes: %q", l.Notes)
	}
	for _, v := range l.Levels {
		if (v.Name == trace.LevelPull || v.Name == trace.LevelRing) && !v.Live {
			t.Errorf("%+v", v)
		}
	}
	i := slices.IndexFunc(l.Devices[0].CQs, func(x *top.CQ) bool { return x.Kernel == "" && x.Depth == uint32(q.Depth()) })
	if i < 0 {
		t.Fatalf("our queue is not there: %s", out)
	}
	if x := l.Devices[0].CQs[i]; x.PID != nil || x.Process != "" || x.Thread != nil || x.Occupied == nil || *x.Occupied != 0 {
		t.Errorf("our queue, whose process cannot be seen from there: %+v", x)
	}
}

// Devices that come and go come and go.
func TestGuestTopDevices(t *testing.T) {
	guestOnly(t)
	const name = "rxe_top"
	has := func(l *top.Look) bool {
		return slices.ContainsFunc(l.Devices, func(d *top.Device) bool { return d.Name == name && len(d.Ports) == 1 && len(d.CQs) > 0 })
	}
	l := watchTop(t, "-i", "0.1", "-trace=off")
	c, err := nldev.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// Several times, so that some go while they are looked at.
	for range 3 {
		if err := c.NewLink(name, "rxe", "lo"); errors.Is(err, syscall.EPERM) {
			t.Skip("declared skip: making a device needs CAP_NET_ADMIN; run in the guest: rxevm test")
		} else if err != nil {
			t.Fatal(err)
		}
		come := l.until(t, func(l *top.Look) string {
			if !has(l) {
				return "the new device is not there"
			}
			return ""
		})
		i := slices.IndexFunc(come.Devices, func(d *top.Device) bool { return d.Name == name })
		if err := c.DelLink(come.Devices[i].Index); err != nil {
			t.Fatal(err)
		}
		l.until(t, func(l *top.Look) string {
			if slices.ContainsFunc(l.Devices, func(d *top.Device) bool { return d.Name == name }) {
				return "a device that is gone is there"
			}
			return ""
		})
	}
}

// What is served of a real device is valid.
func TestGuestTopListen(t *testing.T) {
	dev := guestOnly(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- cmdTop(ctx, []string{"-listen", "127.0.0.1:0", "-i", "0.2", "-trace=off"}, io.Discard, w)
	}()
	var said bytes.Buffer
	address := regexp.MustCompile(`http://(127\.0\.0\.1:\d+)/metrics`)
	for !address.Match(said.Bytes()) {
		if _, err := io.CopyN(&said, r, 1); err != nil {
			t.Fatal(err)
		}
	}
	go io.Copy(io.Discard, r)
	text := topScrape(t, string(address.FindSubmatch(said.Bytes())[1]))
	for _, want := range []string{
		"goverbs_top_up 1\n", `goverbs_top_port_state{device="` + dev.Name + `",port="1"} 4`, `goverbs_top_port_counter_total{device="` + dev.Name + `",port="1",source="hw",counter="sent_pkts"} `,
		`goverbs_top_objects{device="` + dev.Name + `",process="[ib_core]",pid="",kind="cq"} 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	cancel()
	if c := waitFor(t, code); c != 0 {
		t.Errorf("status %d", c)
	}
}
