package top

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
)

// countingFS counts the files that are opened.
type countingFS struct {
	fs.FS
	opened int
}

func (f *countingFS) Open(name string) (fs.File, error) {
	f.opened++
	return f.FS.Open(name)
}

// Whatever the size of the terminal: it fits, and what matters most is there.
func TestFits(t *testing.T) {
	for _, w := range []*world{newWorld(), newWorld().traced()} {
		l := w.twoLooks(t)
		for width := 1; width < 180; width += 3 {
			for _, height := range []int{1, 2, 5, 10, 24, 60} {
				lines := Lines(l, Page{Width: width, Height: height})
				if len(lines) > height || len(lines) == 0 {
					t.Fatalf("%d lines on %dx%d", len(lines), width, height)
				}
				for _, x := range lines {
					if len(x) > width {
						t.Fatalf("%d characters on %dx%d: %q", len(x), width, height, x)
					}
				}
				all := strings.Join(lines, "\n")
				plain(t, "a terminal", all)
				if width >= 70 && height >= 60 && (!strings.Contains(all, "PROCESS") || !strings.Contains(all, "QPN") || !strings.Contains(all, "CQN")) {
					t.Errorf("%dx%d:\n%s", width, height, all)
				}
			}
		}
	}
}

// On a low terminal each table has some rows, the busiest, and says how many
// more there are.
func TestBusiestFirst(t *testing.T) {
	w := newWorld()
	for i := range uint32(50) {
		w.thread(500+i, 500+i, fmt.Sprint("p", i))
		w.netlink.devices[0].contexts = append(w.netlink.devices[0].contexts, w.netlink.devices[0].contexts[0])
		w.netlink.devices[0].contexts[len(w.netlink.devices[0].contexts)-1].TID = 500 + i
		w.netlink.devices[0].contexts[len(w.netlink.devices[0].contexts)-1].ID = 500 + i
	}
	lines := Lines(w.twoLooks(t), Page{Width: 100, Height: 40})
	i := slices.IndexFunc(lines, func(s string) bool { return strings.HasPrefix(s, "PROCESS") })
	if i < 0 || !strings.HasPrefix(lines[i+1], "ib_send_bw") {
		t.Fatalf("the busiest process is not first:\n%s", strings.Join(lines, "\n"))
	}
	if !slices.ContainsFunc(lines, func(s string) bool { return strings.HasPrefix(s, "  ... and ") && strings.HasSuffix(s, " more") }) {
		t.Errorf("nothing says that there are more:\n%s", strings.Join(lines, "\n"))
	}
}

func TestCells(t *testing.T) {
	r := func(f float64) *float64 { return &f }
	for got, want := range map[string]string{
		rate(nil): "-", rate(r(0)): "0", rate(r(0.5)): "0.5", rate(r(12)): "12", rate(r(9999.4)): "9999", rate(r(12345)): "12k", rate(r(1.5e6)): "1500k",
		rate(r(1e30)): "1000000000000E", bytesText(0): "0", bytesText(4096): "4096", bytesText(1 << 20): "1024Ki", bytesText(1<<64 - 1): "16Ei",
		duration(0.4): "0us", duration(999): "999us", duration(1500): "1.5ms", duration(2e6): "2.0s",
		Owner{}.name(): "?", Owner{}.pid(): "-",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestWrap(t *testing.T) {
	for width := 1; width < 40; width++ {
		const text = "not live: pull, ring: operation not permitted averylongwordthatfitsnowhere"
		for _, l := range wrap(text, width) {
			if len(l) > width {
				t.Errorf("%d: %q", width, l)
			}
		}
	}
	if got := wrap("one two", 0); len(got) != 1 {
		t.Errorf("%q", got)
	}
}
