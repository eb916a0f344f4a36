// Package perf measures what perftest's ib_{send,write,read,atomic}_{bw,lat} measure:
// bandwidth, message rate, latency, and the processor time of a message.
//
//	s, err := perf.Open(dev, cfg) // a perf.Config: the test, the queues, the sizes
//	if err != nil {
//		return err
//	}
//	defer s.Close()
//	conn, err := perf.Dial(ctx, host, port) // or perf.Listen, on the other side
//	if err != nil {
//		return err
//	}
//	if err := s.Meet(ctx, conn); err != nil {
//		return err
//	}
//	for _, size := range s.Sizes() {
//		r, err := s.Measure(ctx, size, nil)
//		...
//	}
//
// The two sides agree over TCP on what to measure, tell each other their queue pairs and
// memory, and begin each phase together: a warm-up, and then what counts. Either may end
// it before its time, and both have a report of what there was.
//
// The loops are perftest's: a stream of requests of which every n-th has a completion, in
// lists behind one doorbell; a ping-pong of sends; writes that the other side sees arrive
// in its memory; reads and atomics one after another. They allocate nothing.
//
// # Concurrency
//
// A [Side] belongs to one goroutine. The end of a context ends Meet and Measure. Two sides
// may be in one process, in a goroutine each, with Config.Together.
//
// # Errors
//
// A [*usage.Error] is a choice that cannot be, or that the other side has made
// differently: other flags will help. [Stopped] tells an error that the other side's end
// is the reason of. All other errors are the system's or the device's.
package perf
