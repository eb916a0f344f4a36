package selftest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/uverbs"
)

// errorTests have requests fail, each in its way.
func errorTests() []test {
	return []test{
		{group: "errors", name: "write with a wrong rkey", run: access(Work{WrongKey: true})},
		{group: "errors", name: "write beyond the region", run: access(Work{To: memoryBytes - 8, Beyond: 4096})},
		{group: "errors", name: "read with a wrong rkey", run: access(Work{Op: cq.OpRead, WrongKey: true})},
		{group: "errors", name: "write to a region that allows none", run: testRegionRights},
		{group: "errors", name: "write through a QP that allows none", run: testQueueRights},
		{group: "errors", name: "send from a wrong lkey", run: testWrongLKey},
		{group: "errors", name: "receive into a wrong lkey", run: testWrongRecvLKey},
		{group: "errors", name: "message too long", run: testTooLong},
		{group: "errors", name: "RNR retries exceeded", run: testNotReady},
		{group: "errors", name: "RNR, and a receive after all", run: testReadyAfterAll},
		{group: "errors", name: "retries exceeded", run: testRetries},
		{group: "errors", name: "what is behind a failure is flushed", run: testFlush},
		{group: "errors", name: "modified to ERR: all is flushed", run: testModifyError},
	}
}

// failure takes a completion and holds its status against those that it may have. The
// first is the one of the specification; another one is told of in the row.
func (t *bench) failure(ctx context.Context, s side, id uint64, of cq.Side, may ...cq.Status) error {
	a, err := t.order(ctx, s, Order{Do: doTake, N: 1})
	if err != nil {
		return err
	}
	d := a.Done[0]
	if d.ID != id || d.Side != of {
		return fmt.Errorf("%v, want the %v request %d", d, of, id)
	}
	if !slices.Contains(may, d.Status) {
		var names []string
		for _, m := range may {
			names = append(names, fmt.Sprintf("%v (status %d)", m, uint32(m)))
		}
		return fmt.Errorf("%v, want %s", d, strings.Join(names, " or "))
	}
	text := fmt.Sprintf("%v: %v", of, d.Status)
	if d.Status != may[0] {
		text += fmt.Sprintf(", where the specification says %v", may[0])
	}
	if d.VendorErr != 0 {
		text += fmt.Sprintf(", vendor error %#x", d.VendorErr)
	}
	t.notef("%s", text)
	return nil
}

// soft adds statuses that a device has in the place of the right one where soft-RoCE is
// at one of the ends.
func (t *bench) soft(right cq.Status, others ...cq.Status) []cq.Status {
	may := []cq.Status{right}
	for _, a := range t.made {
		if a.Device.Driver == uverbs.DriverRXE.String() {
			return append(may, others...)
		}
	}
	return may
}

// silent says whether the responder is soft-RoCE of Linux 5.10, which does not answer what
// it refuses, and does not wait between answers that it is not ready.
func (t *bench) silent() bool {
	b := t.made[1].Device
	return b.Driver == uverbs.DriverRXE.String() && strings.HasPrefix(b.Kernel, "5.10.")
}

// refusal adds how a request ends whose refusal is not answered.
func (t *bench) refusal(may ...cq.Status) []cq.Status {
	if t.silent() {
		may = append(may, cq.StatusRetryExceeded)
	}
	return may
}

// failed says whether an end's queue pair is in ERR.
func (t *bench) failed(ctx context.Context, s side) error {
	a, err := t.order(ctx, s, Order{Do: doState})
	if err == nil && a.State != uverbs.StateErr {
		err = fmt.Errorf("after the failure the queue pair is in %v and not in ERR", a.State)
	}
	return err
}

// access is a test of an access that the other end refuses.
func access(w Work) func(context.Context, *bench) error {
	return func(ctx context.Context, t *bench) error {
		spec := usual(uverbs.RC)
		return t.refused(ctx, spec, spec, w, cq.StatusRemoteAccess)
	}
}

// refused posts a request that fails at the other end, by default a write.
func (t *bench) refused(ctx context.Context, a, b Spec, w Work, may ...cq.Status) error {
	if err := t.meet(ctx, a, b, nil); err != nil {
		return err
	}
	w.ID, w.Pieces = 1, []Piece{{0, 64}}
	if w.Op == cq.OpSend {
		w.Op = cq.OpWrite
	}
	if err := t.post(ctx, t.a, w); err != nil {
		return err
	}
	if err := t.failure(ctx, t.a, 1, cq.SendSide, t.refusal(may...)...); err != nil {
		return err
	}
	first, ok := t.a.qp.FirstFailure()
	if !ok || first.ID != 1 {
		return fmt.Errorf("the first failure of the queue pair is said to be of request %d (%v)", first.ID, ok)
	}
	return t.failed(ctx, t.a)
}

func testRegionRights(ctx context.Context, t *bench) error {
	a, b := usual(uverbs.RC), usual(uverbs.RC)
	b.Region = uverbs.LocalWrite
	return t.refused(ctx, a, b, Work{}, cq.StatusRemoteAccess)
}

// testQueueRights: the specification leaves it to the responder which of the two it says.
func testQueueRights(ctx context.Context, t *bench) error {
	a, b := usual(uverbs.RC), usual(uverbs.RC)
	b.Access = uverbs.NoAccess
	return t.refused(ctx, a, b, Work{}, cq.StatusRemoteInvalidReq, cq.StatusRemoteAccess)
}

func testWrongLKey(ctx context.Context, t *bench) error {
	a, b := usual(uverbs.RC), usual(uverbs.RC)
	a.Foreign = true
	if err := t.meet(ctx, a, b, nil); err != nil {
		return err
	}
	if err := t.post(ctx, t.b, Work{Op: cq.OpRecv, ID: 8, Pieces: []Piece{{0, 64}}}); err != nil {
		return err
	}
	if err := t.post(ctx, t.a, Work{Op: cq.OpSend, ID: 1, Foreign: true, Pieces: []Piece{{0, 64}}}); err != nil {
		return err
	}
	return t.failure(ctx, t.a, 1, cq.SendSide, t.soft(cq.StatusLocalProtection, cq.StatusLocalQPOperation, cq.StatusFlushed)...)
}

func testWrongRecvLKey(ctx context.Context, t *bench) error {
	a, b := usual(uverbs.RC), usual(uverbs.RC)
	b.Foreign = true
	if err := t.meet(ctx, a, b, nil); err != nil {
		return err
	}
	if err := t.post(ctx, t.b, Work{Op: cq.OpRecv, ID: 8, Foreign: true, Pieces: []Piece{{0, 64}}}); err != nil {
		return err
	}
	if err := t.post(ctx, t.a, Work{Op: cq.OpSend, ID: 1, Pieces: []Piece{{0, 64}}}); err != nil {
		return err
	}
	if err := t.failure(ctx, t.a, 1, cq.SendSide, t.soft(cq.StatusRemoteOperation, cq.StatusRemoteAccess, cq.StatusRemoteInvalidReq)...); err != nil {
		return err
	}
	return t.failure(ctx, t.b, 8, cq.RecvSide, t.soft(cq.StatusLocalProtection, cq.StatusLocalQPOperation, cq.StatusLocalAccess, cq.StatusFlushed)...)
}

func testTooLong(ctx context.Context, t *bench) error {
	spec := usual(uverbs.RC)
	if err := t.meet(ctx, spec, spec, nil); err != nil {
		return err
	}
	if err := t.post(ctx, t.b, Work{Op: cq.OpRecv, ID: 8, Pieces: []Piece{{0, 63}}}); err != nil {
		return err
	}
	if err := t.post(ctx, t.a, Work{Op: cq.OpSend, ID: 1, Pieces: []Piece{{0, 64}}}); err != nil {
		return err
	}
	if err := t.failure(ctx, t.a, 1, cq.SendSide, t.soft(cq.StatusRemoteInvalidReq, cq.StatusRemoteOperation)...); err != nil {
		return err
	}
	return t.failure(ctx, t.b, 8, cq.RecvSide, t.soft(cq.StatusLocalLength, cq.StatusLocalQPOperation)...)
}

func testNotReady(ctx context.Context, t *bench) error {
	spec := usual(uverbs.RC)
	if err := t.meet(ctx, spec, spec, &Options{RNRRetries: 1}); err != nil {
		return err
	}
	if err := t.post(ctx, t.a, Work{Op: cq.OpSend, ID: 1, Pieces: []Piece{{0, 64}}}); err != nil {
		return err
	}
	return t.failure(ctx, t.a, 1, cq.SendSide, cq.StatusRNRRetryExceeded)
}

func testReadyAfterAll(ctx context.Context, t *bench) error {
	spec := usual(uverbs.RC)
	if err := t.meet(ctx, spec, spec, &Options{RNRRetries: uverbs.RetryForever}); err != nil {
		return err
	}
	if t.silent() {
		return fmt.Errorf("%w by soft-RoCE of Linux 5.10, whose doorbell does not return before there is a receive", uverbs.ErrNotSupported)
	}
	if err := t.fill(ctx, t.a, 0, 64, 2); err != nil {
		return err
	}
	if err := t.post(ctx, t.a, Work{Op: cq.OpSend, ID: 1, Pieces: []Piece{{0, 64}}}); err != nil {
		return err
	}
	if err := t.post(ctx, t.b, Work{Op: cq.OpRecv, ID: 8, Pieces: []Piece{{0, 64}}}); err != nil {
		return err
	}
	if err := t.expect(ctx, t.a, Done{ID: 1, Op: cq.OpSend, Bytes: 64}); err != nil {
		return err
	}
	if err := t.expect(ctx, t.b, Done{ID: 8, Side: cq.RecvSide, Op: cq.OpRecv, Bytes: 64}); err != nil {
		return err
	}
	return t.check(ctx, t.b, "what arrived", 0, 64, 2)
}

// testRetries: the other end's queue pair is gone.
func testRetries(ctx context.Context, t *bench) error {
	spec := usual(uverbs.RC)
	if err := t.meet(ctx, spec, spec, &Options{AckTimeoutMS: 16, Retries: 2}); err != nil {
		return err
	}
	if _, err := t.order(ctx, t.b, Order{Do: doCloseQueue}); err != nil {
		return err
	}
	if err := t.post(ctx, t.a, Work{Op: cq.OpSend, ID: 1, Pieces: []Piece{{0, 64}}}); err != nil {
		return err
	}
	return t.failure(ctx, t.a, 1, cq.SendSide, cq.StatusRetryExceeded)
}

// flushed are the ends of requests that were flushed.
func flushed(of cq.Side, from, to uint64) (all []Done) {
	for id := from; id < to; id++ {
		all = append(all, Done{ID: id, Side: of, Status: cq.StatusFlushed})
	}
	return all
}

// testFlush: a request fails, those behind it and all receives end as flushed, each
// once; and FirstFailure is the one that failed. Drain brings about the ends that some
// kernels of soft-RoCE forget.
func testFlush(ctx context.Context, t *bench) error {
	spec := usual(uverbs.RC)
	if err := t.meet(ctx, spec, spec, nil); err != nil {
		return err
	}
	for id := range uint64(10) {
		if err := t.post(ctx, t.a, Work{Op: cq.OpRecv, ID: 100 + id, Pieces: []Piece{{0, 64}}}); err != nil {
			return err
		}
	}
	work := []Work{{Op: cq.OpWrite, ID: 0, WrongKey: true, Pieces: []Piece{{0, 64}}}}
	for id := range uint64(8) {
		work = append(work, Work{Op: cq.OpWrite, ID: 1 + id, Pieces: []Piece{{0, 64}}})
	}
	if err := t.post(ctx, t.a, work...); err != nil {
		return err
	}
	if err := t.failure(ctx, t.a, 0, cq.SendSide, t.refusal(cq.StatusRemoteAccess)...); err != nil {
		return err
	}
	done, err := t.drain(ctx)
	if err != nil {
		return err
	}
	if err := expect(done, append(flushed(cq.SendSide, 1, 9), flushed(cq.RecvSide, 100, 110)...)...); err != nil {
		return err
	}
	if w, ok := t.a.qp.FirstFailure(); !ok || w.ID != 0 {
		return fmt.Errorf("the first failure of the queue pair is said to be of request %d (%v), and it was 0", w.ID, ok)
	}
	return nil
}

func testModifyError(ctx context.Context, t *bench) error {
	spec := usual(uverbs.RC)
	if err := t.meet(ctx, spec, spec, nil); err != nil {
		return err
	}
	for id := range uint64(16) {
		if err := t.post(ctx, t.a, Work{Op: cq.OpRecv, ID: 100 + id, Pieces: []Piece{{0, 64}}}); err != nil {
			return err
		}
	}
	if _, err := t.order(ctx, t.a, Order{Do: doError}); err != nil {
		return err
	}
	if err := t.failed(ctx, t.a); err != nil {
		return err
	}
	done, err := t.drain(ctx)
	if err != nil {
		return err
	}
	return expect(done, flushed(cq.RecvSide, 100, 116)...)
}

// drain drains end A's queue pair: every request that was accepted comes to its end.
func (t *bench) drain(ctx context.Context) (done []Done, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.patience)
	defer cancel()
	e := t.a
	for i := range e.polled {
		done = append(done, doneOf(&e.polled[i]))
	}
	e.polled = nil
	made := 0
	err = e.qp.Drain(ctx, func(w uverbs.WC) {
		d := doneOf(&w)
		if d.Synthetic {
			made++
		}
		done = append(done, d)
	})
	if err != nil {
		return done, fmt.Errorf("drain: %w; until then%s", err, listed(done))
	}
	if made > 0 {
		t.notef("%d ends that the device does not report were made by the library", made)
	}
	return done, nil
}
