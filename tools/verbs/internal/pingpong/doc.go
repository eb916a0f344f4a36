// Package pingpong plays the ping-pong of rdma-core's ibv_rc_pingpong on an RC
// queue pair, so that either side can be that program.
//
//	g, err := pingpong.Open(dev, cfg)
//	if err != nil {
//		return err
//	}
//	defer g.Close()
//	fmt.Println(g.Local())
//	if err := g.Meet(ctx); err != nil {
//		return err
//	}
//	elapsed, err := g.Play(ctx, nil)
//
// The two sides tell each other their addresses over TCP; the server is ready to
// receive before it answers. Then the client sends a message, the server sends
// it back, and so on.
//
// # Concurrency
//
// A [Game] belongs to one goroutine. The end of a context ends Meet and Play.
//
// # Errors
//
// A [*usage.Error] is a choice that cannot be: other flags will help. All other
// errors are the system's, the device's or the peer's.
package pingpong
