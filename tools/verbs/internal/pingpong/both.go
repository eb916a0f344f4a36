package pingpong

import (
	"context"
	"errors"
	"time"

	"github.com/goverbs/goverbs/poll"
)

// PlayBoth connects the two sides of a game that both are of this process, and plays
// it to the end. It returns how long that took. It is Meet and Play of both sides in
// one, and needs no TCP.
//
// Busy, one goroutine polls both sides in turn; in event mode each sleeps in its own.
func PlayBoth(ctx context.Context, server, client *Game) (time.Duration, error) {
	for _, m := range []struct{ g, peer *Game }{{server, client}, {client, server}} {
		m.g.remote = m.peer.local
		if err := m.g.connect(ctx, m.g.remote); err != nil {
			return 0, err
		}
	}
	begin := time.Now()
	play := spinBoth
	if client.cfg.Events {
		play = sleepBoth
	}
	err := play(ctx, server, client)
	return time.Since(begin), err
}

// spinBoth plays both sides in this goroutine.
func spinBoth(ctx context.Context, server, client *Game) error {
	for _, g := range []*Game{server, client} { // the server's first message is an answer
		if err := g.player.start(g == client); err != nil {
			return g.named(err)
		}
	}
	for {
		for range looks {
			for _, g := range [...]*Game{server, client} {
				n, err := g.cq.Poll(g.player.wcs[:])
				if err == nil {
					err = g.player.take(n)
				}
				if err != nil {
					return g.named(err)
				}
			}
			if server.player.over() && client.player.over() {
				return nil
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// sleepBoth plays each side in a goroutine. The side that fails ends the other, which
// would wait for ever.
func sleepBoth(ctx context.Context, server, client *Game) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	side := func(g *Game) error {
		release, err := g.link.sleep(ctx, poll.Event{})
		if err == nil {
			defer release()
			err = g.player.play(g == client)
		}
		if err = g.named(err); err != nil {
			cancel(err)
		}
		return err
	}
	served := make(chan error, 1)
	go func() { served <- side(server) }()
	if err := side(client); errors.Join(<-served, err) != nil {
		return context.Cause(ctx)
	}
	return nil
}
