// Package selftest tries everything that the library does on a device, and tells what
// passed, what failed, and what device, driver or kernel cannot do. It is what verbs
// selftest is made of.
//
//	result, err := selftest.Run(ctx, selftest.Config{
//		Open: func() (*uverbs.Device, error) { return uverbs.Open("mlx5_0", nil) },
//		Tell: func(r selftest.Row) { fmt.Println(r.Line()) },
//	})
//	if err != nil {
//		return err
//	}
//	fmt.Println(result.Failed())
//
// Each test has two ends, a device opened anew for each. The first is in this process.
// The second carries out orders: by a call, or, where it is on another machine, by lines
// of JSON over TCP, which [Serve] takes. So each test is written once.
//
// A recorded run keeps completions and requests as they stood in memory, for those who
// compare devices; a mask copies what is known to be nobody's secret and leaves zeros in
// the place of all else.
//
// # Concurrency
//
// Run runs one test at a time, in a goroutine of its own, and gives up on one that does
// not come back. Serve may be called once for each listener.
//
// # Errors
//
// What a device does wrong is in the rows of the result. An error of Run says why there
// was nothing to run, one of Serve that it cannot listen any more, or why its context
// ended.
package selftest
