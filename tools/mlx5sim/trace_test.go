package main

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/mlx5/model"
)

// writes keeps how much came in one piece.
type writes struct {
	bytes.Buffer
	largest int
}

func (w *writes) Write(p []byte) (int, error) {
	w.largest = max(w.largest, len(p))
	return w.Buffer.Write(p)
}

// Each event is one whole line, in order, and all are there when the trace is stopped.
func TestTraceLines(t *testing.T) {
	m, err := model.New(model.DeviceConfig{Name: "mlx5_0"})
	if err != nil {
		t.Fatal(err)
	}
	var w writes
	tr := startTrace(m, &printer{w: &w})
	var files []*model.File
	for pid := range 3 {
		f, err := m.Device("mlx5_0").Open(model.Local{}, &model.OpenOptions{Program: fmt.Sprint(pid)})
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	const rounds = 300
	for range rounds {
		for _, f := range files {
			if err := f.Ioctl(make([]byte, abi.SizeofUverbsIoctlHdr)); err == nil {
				t.Fatal("an empty request succeeds")
			}
		}
	}
	tr.stop(m)
	_ = files[0].Ioctl(make([]byte, abi.SizeofUverbsIoctlHdr)) // is not told
	lines := strings.SplitAfter(w.String(), "\n")
	if len(lines) != rounds*len(files)+1 || lines[rounds*len(files)] != "" {
		t.Fatalf("%d lines, want %d", len(lines)-1, rounds*len(files))
	}
	for i, l := range lines[:rounds*len(files)] {
		want := fmt.Sprintf(`^mlx5sim: \d+\.\d{6} pid %d mlx5_0: ioctl .*: E[A-Z]+: .*\n$`, i%len(files))
		if ok, err := regexp.MatchString(want, l); err != nil || !ok {
			t.Fatalf("line %d is %q, want %s", i, l, want)
		}
	}
	if w.largest > wholeWrite {
		t.Errorf("%d bytes in one write: a pipe may mix them with others", w.largest)
	}
}
