//go:build linux

// Rts is the program in Go that rxevm bench -perf starts over and over: it opens a device and
// brings a queue pair to RTS, connected to itself. rxevm's testdata/rts.c is the same program in C.
//
//	rts DEVICE PORT GIDINDEX [hold]
//
// It prints two times of CLOCK_MONOTONIC in ns: before it asked for a device, and with the queue
// pair in RTS. With hold it then waits for the end of its input, so that one can look at what it
// has made. The kernel cleans up behind it.
package main

import (
	"context"
	"io"
	"os"
	"strconv"

	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// What rts.c has, too.
const (
	bytes       = 4096
	depth       = 16
	completions = 32
)

func main() {
	if len(os.Args) < 4 {
		os.Stderr.WriteString("usage: rts DEVICE PORT GIDINDEX [hold]\n")
		os.Exit(2)
	}
	begin := now()
	port, err := strconv.Atoi(os.Args[2])
	index, ierr := strconv.Atoi(os.Args[3])
	if err == nil {
		err = ierr
	}
	if err == nil {
		err = ready(os.Args[1], port, index)
	}
	if err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
	end := now()
	os.Stdout.WriteString(strconv.FormatInt(begin, 10) + " " + strconv.FormatInt(end, 10) + "\n")
	if len(os.Args) > 4 {
		_, _ = io.Copy(io.Discard, os.Stdin) // any end will do
	}
}

// now is CLOCK_MONOTONIC, by which the launcher measures as well.
func now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0 // Linux has had this clock for long.
	}
	return t.Nano()
}

// ready brings a queue pair to RTS. Nothing is closed: the process ends.
func ready(device string, port, index int) error {
	dev, err := uverbs.Open(device, nil)
	if err != nil {
		return err
	}
	pd, err := dev.NewPD()
	if err != nil {
		return err
	}
	mem, err := uverbs.Alloc(bytes, nil)
	if err != nil {
		return err
	}
	if _, err = pd.Register(mem.Bytes(), uverbs.LocalWrite|uverbs.RemoteWrite); err != nil {
		return err
	}
	q, err := dev.NewCQ(completions, nil)
	if err != nil {
		return err
	}
	qp, err := pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: q, SendDepth: depth, RecvDepth: depth, Source: uverbs.FromGID(port, index), PeerAccess: uverbs.RemoteWrite})
	if err != nil {
		return err
	}
	return qp.Connect(context.Background(), qp.Endpoint(), &uverbs.ConnectOptions{ReadDepth: 1})
}
