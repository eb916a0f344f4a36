package main

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/goverbs/goverbs/tools/internal/tty"
	"github.com/goverbs/goverbs/tools/verbs/internal/pingpong"
	"github.com/goverbs/goverbs/tools/verbs/internal/present"
)

// cmdPingpong is verbs pingpong. Its exit status is 2 where other flags would
// help, and 1 for everything else that goes wrong.
func cmdPingpong(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	err := playPingpong(ctx, args, stdout, stderr)
	return exitStatus(ctx, "pingpong", err, stderr)
}

// playPingpong plays one side.
func playPingpong(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	cfg, asJSON, err := parsePingpong(args, stdout)
	if err != nil {
		return err
	}
	say := stdout
	if asJSON {
		say = io.Discard
	}
	if isSimulated(cfg.Device) {
		return playSimulated(ctx, cfg, asJSON, say, stdout)
	}
	dev, err := openDevice(cfg.Device)
	if err != nil {
		return err
	}
	g, err := pingpong.Open(dev, cfg)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := g.Close(); err == nil {
			err = cerr
		}
	}()
	if cfg.GIDIndex == pingpong.DefaultGID && !g.Local().GID.IsZero() {
		s := g.Source()
		fmt.Fprintf(say, "  no -g given: using GID index %d of port %d of %s, %s (%s)\n", s.Index, s.Port, g.Device(), s.GID, s.Type)
	}
	fmt.Fprintf(say, "  local address:  %v\n", g.Local())
	if err := present.While(ctx, dev, g.Meet); err != nil {
		return err
	}
	fmt.Fprintf(say, "  remote address: %v\n", g.Remote())

	var count *atomic.Int64
	if tty.Is(stderr) {
		count = new(atomic.Int64)
		defer showProgress(stderr, pingpongProgress(count, cfg.Iters))()
	}
	elapsed, err := g.Play(ctx, count)
	if err != nil {
		return err
	}
	return writePingpong(g.Report(elapsed), asJSON, stdout)
}

func writePingpong(r pingpong.Report, asJSON bool, w io.Writer) error {
	if asJSON {
		return r.WriteJSON(w)
	}
	return r.WriteText(w)
}
