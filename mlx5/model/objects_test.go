package model_test

import (
	"maps"
	"testing"

	"github.com/goverbs/goverbs/mlx5/model"
)

// What programs hold is counted by kind, of all of them together, until it is destroyed
// or they close.
func TestObjects(t *testing.T) {
	m := newModel(t, model.DeviceConfig{Name: "sim0"}, model.DeviceConfig{Name: "sim1"})
	d := m.Device("sim0")
	want := func(when string, w map[string]int) {
		t.Helper()
		if got := d.Objects(); !maps.Equal(got, w) {
			t.Errorf("%s: %v, want %v", when, got, w)
		}
	}
	want("before anything", map[string]int{})
	f, err := d.Open(model.Local{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want("without a context", map[string]int{})
	c := open(t, m, "sim0")
	open(t, m, "sim1")
	want("a context", map[string]int{"context": 1, "PD": 1, "UAR": 1})
	q := c.cq(8, cqOptions{})
	c.qp(rc, q, q, qpOptions{})
	c.allocPD()
	want("a queue pair", map[string]int{"context": 1, "PD": 2, "UAR": 1, "CQ": 1, "QP": 1})
	e := c.cq(8, cqOptions{channel: true})
	want("a channel", map[string]int{"context": 1, "PD": 2, "UAR": 1, "CQ": 2, "QP": 1, "channel": 1})
	c.must("close", e.channel.Close())
	want("a closed channel", map[string]int{"context": 1, "PD": 2, "UAR": 1, "CQ": 2, "QP": 1})
	second := open(t, m, "sim0")
	want("two programs", map[string]int{"context": 2, "PD": 3, "UAR": 2, "CQ": 2, "QP": 1})
	second.must("close", second.f.Close())
	c.must("close", c.f.Close())
	c.must("close", f.Close())
	want("after all", map[string]int{})
}
