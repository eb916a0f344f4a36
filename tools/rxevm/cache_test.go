//go:build linux

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
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

func TestCancelledToolGoesWithItsChildren(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	mark := filepath.Join(t.TempDir(), "cleaned")
	go func() {
		time.Sleep(200 * time.Millisecond)
		cancel()
	}()
	start := time.Now()
	// The inner shell stands for a compiler below the go command: it gets the signal, too, and
	// cleans up.
	_, err := runTool(ctx, "", "/bin/sh", "-c", `sh -c 'trap "touch `+mark+`; exit" INT; while :; do sleep 0.05; done'; exit 1`)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
	if d := time.Since(start); d > 4*time.Second {
		t.Errorf("it took %v", d)
	}
	if _, err := os.Stat(mark); err != nil {
		t.Errorf("the child did not get to clean up: %v", err)
	}
}
