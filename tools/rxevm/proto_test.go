package main

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestFramesComeBackAsSent(t *testing.T) {
	var wire bytes.Buffer
	w := &frameWriter{w: &wire}
	long := bytes.Repeat([]byte{0, 1, 0xff, 'x', '\n'}, maxFrame/2) // two and a half frames
	// What a program prints may look like frames; it must not become any.
	forged := []byte("x\x01\x00\x00\x00\x02\x00\x00\x00{}")
	for _, p := range [][]byte{long, forged, nil} {
		if err := w.write(frameStdout, 7, p); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.writeJSON(frameExit, 7, exitReport{Code: 3}); err != nil {
		t.Fatal(err)
	}
	var got []byte
	frames := 0
	for {
		f, err := readFrame(&wire)
		if err == io.EOF {
			t.Fatal("the stream ended before the exit frame")
		}
		if err != nil {
			t.Fatal(err)
		}
		if f.job != 7 {
			t.Fatalf("frame for job %d, want 7", f.job)
		}
		if f.typ == frameExit {
			if string(f.payload) != `{"code":3}` {
				t.Errorf("exit frame holds %s", f.payload)
			}
			break
		}
		frames++
		got = append(got, f.payload...)
	}
	if want := append(long, forged...); !bytes.Equal(got, want) {
		t.Errorf("%d bytes came back, %d were sent, or they differ", len(got), len(want))
	}
	if frames != 5 {
		t.Errorf("%d stdout frames, want 3 for the long text, 1 for the forged one, 1 empty", frames)
	}
	if _, err := readFrame(&wire); err != io.EOF {
		t.Errorf("behind the last frame: %v, want io.EOF", err)
	}
}

func TestBrokenFramesAreErrors(t *testing.T) {
	if _, err := readFrame(strings.NewReader("o\x01\x00\x00\x00\xff\xff\xff\xff")); err == nil || !strings.Contains(err.Error(), "4294967295") {
		t.Errorf("a frame of 4 GB: %v, want an error that names the size", err)
	}
	for _, s := range []string{"o", "o\x01\x00\x00\x00\x02\x00\x00\x00", "o\x01\x00\x00\x00\x02\x00\x00\x00x"} {
		if _, err := readFrame(strings.NewReader(s)); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q: %v, want io.ErrUnexpectedEOF", s, err)
		}
	}
}

func TestStreamWriterSendsNoEmptyFrame(t *testing.T) {
	var wire bytes.Buffer
	s := streamWriter{&frameWriter{w: &wire}, frameInput, 1}
	if n, err := s.Write(nil); n != 0 || err != nil || wire.Len() != 0 {
		t.Errorf("an empty write sent %d bytes (%d, %v): it would end the input", wire.Len(), n, err)
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte("o\x01\x00\x00\x00\x02\x00\x00\x00hi"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		for {
			fr, err := readFrame(r)
			if err != nil {
				return
			}
			var again bytes.Buffer
			if err := (&frameWriter{w: &again}).write(fr.typ, fr.job, fr.payload); err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(b, again.Bytes()) {
				t.Fatalf("frame %v written again is not what was read", fr)
			}
		}
	})
}
