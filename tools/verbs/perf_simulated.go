package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/goverbs/goverbs/tools/verbs/internal/perf"
	"github.com/goverbs/goverbs/tools/verbs/internal/usage"
)

// measureSimulated measures with both sides on the model: the client, which prints, on the
// device that -d names, the server on the other one.
func measureSimulated(ctx context.Context, o *perfOptions, stdout, stderr io.Writer) (err error) {
	name := o.config.Device
	if o.config.Server != "" {
		return usage.Errorf("%s is a device of the model, which lives in one process and cannot reach %s: without a host both sides run in this process", name, o.config.Server)
	}
	m, err := newSimulatedSystem()
	if err != nil {
		return err
	}
	peer := simulatedPeer(name)
	var sides [2]*perf.Side
	defer func() {
		for _, s := range sides {
			if s != nil {
				err = errors.Join(err, s.Close())
			}
		}
	}()
	// The client's first: errors then are of the device that was named.
	for i, device := range []string{name, peer} {
		c := o.config
		c.Device, c.Together = device, true
		if i == 0 {
			c.Server = peer // any name: it makes this side the client
		}
		dev, err := m.open(device)
		if err != nil {
			return err
		}
		if sides[i], err = perf.Open(dev, c); err != nil {
			return err
		}
	}
	if !o.json && o.text.Only == "" {
		fmt.Fprintf(stdout, " no network: both sides run in this process, the client on %s and the server on %s of the model\n", name, peer)
	}
	return o.together(ctx, sides[0], sides[1], stdout, stderr)
}

// together measures with both sides in this process. The client prints.
func (o *perfOptions) together(ctx context.Context, client, server *perf.Side, stdout, stderr io.Writer) error {
	here, there := net.Pipe()
	// Who fails ends the other one by hanging up, so that it waits for nothing.
	served := make(chan error, 1)
	go func() {
		err := server.Meet(ctx, there)
		for _, size := range server.Sizes() {
			if err == nil {
				_, err = server.Measure(ctx, size, nil)
			}
		}
		if err != nil {
			there.Close()
		}
		served <- err
	}()
	err := client.Meet(ctx, here)
	if err == nil {
		err = o.sizes(ctx, client, stdout, stderr)
	}
	if err != nil {
		here.Close()
	}
	other := <-served
	if err == nil || perf.Stopped(err) && other != nil {
		return other // the cause
	}
	return err
}
