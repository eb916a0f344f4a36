// Package uverbstest makes tests of RDMA programs short: connected devices in software,
// things that go wrong with them on demand, and at the end of the test a look at what
// the program left behind. What net/http/httptest is for HTTP, it is for RDMA.
//
//	func TestPeerGone(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) { // a bubble: seconds take no time
//			p := uverbstest.Pair(t)
//			p.Fault("request times=forever: drop")
//			p.A.QP.SendQueue().Send(1, p.A.MR.Span(0, 64))
//			p.A.Flush()
//			if w := p.A.Next(); w.Status != uverbs.StatusRetryExceeded {
//				t.Errorf("%+v", w)
//			}
//		})
//	}
//
// The devices are those of package sim: ConnectX in software, which runs on any system
// and without privileges, through the same calls of package uverbs as hardware does.
// What can go wrong is listed at [model.ParseScript].
//
// # What is left behind
//
// At the end of the test the kit closes what it made, and the test fails if there is
// more: an object on a device of the kit's, a device that the program opened with
// [Fabric.Open], a request that does not end, a poller that still waits on a queue of
// [Pair]'s. It fails too for what neither kernel nor hardware refuse and a correct
// program does not do (model.Model.Violations), for faults that could not happen when their
// time came (model.Model.MissedFaults), and for completions that the library
// took for nobody's. The device itself is asked what there is, so nothing of it depends
// on time, on garbage collection or on what other tests do. A test that has failed
// already is not told of what it therefore did not come to close.
//
// Memory belongs to whom allocated it. Take it from [Fabric.Alloc]: of uverbs.Alloc the
// kit knows no more than whether it is registered. When a device fails it forgets its
// objects, and the test is not asked for them.
//
// # Concurrency
//
// The kit has no goroutine of its own. It works inside testing/synctest bubbles,
// where time-outs of seconds take no time and are exact, and outside; make a fabric inside
// of the bubble that uses it. Methods that end the test when something is wrong are for
// the test's goroutine; all are safe to call while others use the devices.
//
// # Errors
//
// There are none to check: what a test cannot go on without ends it, with [testing.TB.Fatal].
// What is found at the end is reported by [testing.TB.Error].
package uverbstest
