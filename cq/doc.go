// Package cq says what a completion is and what makes one: work completions,
// their statuses and opcodes, work requests, the table in which a queue
// remembers what was posted to it, and the interface that a completion queue
// offers to those who wait on it.
//
// Programs need [WC], [Status], [Opcode], which have their names in package
// uverbs too, [Table], and [Queue] to write a waiter of their own. All else is
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
// may be different goroutines. [Endpoints] may be used from any goroutine.
//
// # Errors
//
// The only error type is [*CompletionError], which [WC.Err] returns for a
// request that failed.
package cq
