// Package cq says what a completion is and what makes one: work completions,
// their statuses and opcodes, work requests, the table in which a queue
// remembers what was posted to it, and the interface that a completion queue
// offers to those who wait on it.
//
// Programs need [WC], [Status], [Opcode], which have their names in package
// uverbs too, [Table], [WriteOpenMetrics], and [Queue] to write a waiter of their own. All else is
// for providers (rxe, mlx5), which produce completions with it. The package does
// no I/O and knows no device.
//
//	var wcs [16]cq.WC
//	n, err := q.Poll(wcs[:])
//	for i := range wcs[:n] {
//		if err := wcs[i].Err(); err != nil {
//			log.Printf("request %d: %v", wcs[i].ID, err)
//			continue
//		}
//		handle(wcs[i].ID, wcs[i].Bytes)
//	}
//
// # Concurrency
//
// A [WC] is plain data. A [Requests] table has one poster and one poller, which
// may be different goroutines; a [SharedRequests] has several pollers.
// [Endpoints], [Members] and [Histogram] may be used from any goroutine.
//
// # Finding requests
//
// A device hands back 64 bits of the program's choice with a completion, a WRID
// (see [MakeWRID]), or 16 bits that say where in its queue the request stood (see
// [Requests.Place]). Providers of the first kind end requests with Oldest and
// EndOldest, those of the second with Front and Pop, and both with Complete where
// the short way does not go.
//
// # Statistics
//
// A [Histogram] counts durations. What counts something is a [MetricSource], and
// [WriteOpenMetrics] writes any number of these as one text for a monitoring system.
//
// # Errors
//
// The only error type is [*CompletionError], which [WC.Err] returns for a
// request that failed.
package cq
