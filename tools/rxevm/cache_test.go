//go:build linux

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestOldScratchFoldersAreSwept(t *testing.T) {
	h := &host{cache: t.TempDir(), say: io.Discard}
	young, err := h.scratch()
	if err != nil {
		t.Fatal(err)
	}
	old, err := h.scratch()
	if err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-25 * time.Hour)
	if err := os.Chtimes(old, past, past); err != nil {
		t.Fatal(err)
	}
	if err := h.sweep(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Errorf("the old folder is still there (%v)", err)
	}
	if _, err := os.Stat(young); err != nil {
		t.Errorf("a running build's folder is gone: %v", err)
	}
}

func TestInterruptEndsTheWaitForTheCache(t *testing.T) {
	h := &host{cache: t.TempDir(), say: io.Discard}
	unlock, err := h.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(errInterrupted) })
	ended := make(chan error, 1)
	go func() {
		_, err := h.lock(ctx)
		ended <- err
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, errInterrupted) {
			t.Errorf("error %v, want that of the context", err)
		}
	case <-time.After(5 * time.Minute):
		t.Error("it still waits")
	}
}

func TestUnusableCacheSaysWhatToDo(t *testing.T) {
	h := &host{cache: filepath.Join(t.TempDir(), "gone"), say: io.Discard}
	_, lockErr := h.lock(t.Context())
	_, scratchErr := h.scratch()
	for _, err := range []error{lockErr, scratchErr} {
		if e := (exitError{}); !errors.As(err, &e) || e.code != exitMissing || !strings.Contains(err.Error(), "set GOVERBS_CACHE") {
			t.Errorf("%v, want status %d and advice about GOVERBS_CACHE", err, exitMissing)
		}
	}
}

func TestCancelledToolGoesWithItsChildren(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	dir := t.TempDir()
	ready, mark := filepath.Join(dir, "ready"), filepath.Join(dir, "cleaned")
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(ready); err == nil {
				cancel()
			}
			time.Sleep(time.Millisecond)
		}
	}()
	// The inner shell stands for a compiler below the go command: it gets the signal, too, and
	// cleans up.
	defer func(d time.Duration) { goodbye = d }(goodbye)
	goodbye = 5 * time.Minute // on a busy machine
	_, err := runTool(ctx, "", "/bin/sh", "-c", `sh -c 'trap ": > `+mark+`; exit" INT TERM; : > `+ready+`; while :; do sleep 0.05; done'; exit 1`)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
	if _, err := os.Stat(mark); err != nil {
		t.Errorf("the child did not get to clean up: %v", err)
	}
}

// The go command is such a program.
func TestProgramsThatASignalEndsLeaveNoTemporaryFiles(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for ctx.Err() == nil {
			if made, _ := filepath.Glob(filepath.Join(os.TempDir(), "*", "left")); len(made) > 0 {
				cancel()
			}
			time.Sleep(time.Millisecond)
		}
	}()
	if _, err := runTool(ctx, "", "/bin/sh", "-c", `test "$TMPDIR" = "$GOTMPDIR" && : > "$TMPDIR/left" && sleep 60`); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
	cancel()
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

func TestMissingAptIsSaidOnce(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	h := &host{cache: t.TempDir(), say: io.Discard}
	_, err := h.qemu(t.Context(), "amd64")
	if e := (exitError{}); !errors.As(err, &e) || e.code != exitMissing || strings.Count(err.Error(), "has no apt-get") != 1 {
		t.Errorf("%v, want status %d and one sentence about apt-get", err, exitMissing)
	}
}
