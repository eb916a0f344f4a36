package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/goverbs/goverbs/tools/verbs/internal/pingpong"
	"github.com/goverbs/goverbs/tools/verbs/internal/usage"
)

// playSimulated plays both sides on the model: the client on the device that -d
// names, the server on the other one.
func playSimulated(ctx context.Context, cfg pingpong.Config, asJSON bool, say, stdout io.Writer) (err error) {
	if cfg.Server != "" {
		return usage.Errorf("%s is a device of the model, which lives in one process and cannot reach %s: without a host both sides play in this process", cfg.Device, cfg.Server)
	}
	m, err := newSimulatedSystem()
	if err != nil {
		return err
	}
	var games [2]*pingpong.Game
	defer func() {
		for _, g := range games {
			if g != nil {
				err = errors.Join(err, g.Close())
			}
		}
	}()
	peer := simulatedPeer(cfg.Device)
	// The client's first: errors then are of the device that was named.
	for i, name := range []string{cfg.Device, peer} {
		side := cfg
		side.Device = name
		if i == 0 {
			side.Server = peer // any name: it makes this side the client
		}
		dev, err := m.open(name)
		if err != nil {
			return err
		}
		if games[i], err = pingpong.Open(dev, side); err != nil {
			return err
		}
	}
	client, server := games[0], games[1]
	fmt.Fprintf(say, "  no network: both sides play in this process, the client on %s and the server on %s of the model\n", cfg.Device, peer)
	fmt.Fprintf(say, "  client's address: %v\n  server's address: %v\n", client.Local(), server.Local())
	elapsed, err := pingpong.PlayBoth(ctx, server, client)
	if err != nil {
		return err
	}
	r := client.Report(elapsed)
	r.Role = "both"
	return writePingpong(r, asJSON, stdout)
}
