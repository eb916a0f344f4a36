package mlx5

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// environments are the prefixes of recorded doorbell cases, and which of our
// doorbells libmlx5's is there. prefer0 is a choice that this library does not
// offer: BlueFlame for inline requests alone.
var environments = map[string]func([]byte) (*Doorbell, error){
	"": BlueFlame, "few-": BlueFlame, "single-": BlueFlame, "static-": BlueFlame, "shutup-": UncachedDoorbell, "nobf-": UncachedDoorbell,
}

// TestDoorbellsRecorded rings as libmlx5 did and compares record and register, and
// the order in which memory was written as far as fences go: what was recorded says
// WQE, then record, then register, and so do TestDoorbellOrder and, for every
// function on the way, TestSendInstructions.
func TestDoorbellsRecorded(t *testing.T) {
	r := loadRecording(t, "doorbells.txt")
	size, err := SizeSend(r.limits, RC, 16, 20, 400, 0)
	if err != nil {
		t.Fatal(err)
	}
	queues := map[string]*recordedQueue{}
	did := 0
	for i := range r.cases {
		c := &r.cases[i]
		prefix := ""
		if p, _, ok := strings.Cut(c.name, "-"); ok && environments[p+"-"] != nil {
			prefix = p + "-"
		}
		if !c.has("ask") || !strings.HasPrefix(c.one(t, "ask"), "requests=") || strings.HasPrefix(c.name, "prefer0-") || strings.HasSuffix(c.name, "last-queue-send") {
			continue
		}
		q := queues[prefix]
		if q == nil {
			q = newDoorbellQueue(t, size, environments[prefix])
			queues[prefix] = q
		}
		ask := words(t, c.one(t, "ask"))
		if ask.number("sq_wqe_count") != 256 {
			t.Fatalf("%s: a queue of %d blocks", c.name, ask.number("sq_wqe_count"))
		}
		start, end := uint32(parseNumber(t, c.one(t, "start"))), uint32(parseNumber(t, c.one(t, "end")))
		if q.next != start {
			q.next, q.published = start, start
		}
		fill(q.uar)
		for i := range ask.number("requests") {
			q.Put(doorbellRequest(ask, i == ask.number("requests")-1))
		}
		q.Publish()
		q.SQ.requests = cq.NewRequests(size.Requests, cq.SendSide, 0x100, new(cq.State))
		if q.next != end {
			t.Errorf("%s: ends at block %d, recorded %d", c.name, q.next, end)
		}
		bell := words(t, c.one(t, "bell"))
		want := fmt.Sprintf("wqe snd=%x", q.record[4:])
		if !strings.HasPrefix(c.one(t, "order"), want+" ") {
			t.Errorf("%s: record % x, recorded %s", c.name, q.record[4:], c.one(t, "order"))
		}
		at, n := registersOffset+bell.number("offset")&0x100, bell.number("len")
		if !bytes.Equal(q.uar[at:at+8], parseBytes(t, bell.m["first"])) {
			t.Errorf("%s: doorbell % x at %#x, recorded %s", c.name, q.uar[at:at+8], at, bell.m["first"])
		}
		fill(q.uar[at : at+n])
		if len(bytes.TrimLeft(q.uar, "\xdb")) > 0 {
			t.Errorf("%s: more of the UAR was written than the %d bytes that were recorded", c.name, n)
		}
		did++
	}
	if did < 40 {
		t.Errorf("only %d of %d cases were compared", did, len(r.cases))
	}
}

func newDoorbellQueue(t *testing.T, size SendSize, make func([]byte) (*Doorbell, error)) *recordedQueue {
	t.Helper()
	q := &recordedQueue{size: size, uar: aligned(adapterPage), record: aligned(recordBytes)}
	d, err := make(q.uar[registersOffset : registersOffset+512])
	if err != nil {
		t.Fatal(err)
	}
	q.SQ, err = NewSQ(SQConfig{Memory: aligned(size.Bytes), Record: q.record, Doorbell: d, QPN: 0x100, Size: size,
		Requests: cq.NewRequests(size.Requests, cq.SendSide, 0x100, new(cq.State))})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// doorbellRequest makes a request of as many segments as were recorded: sends of
// one element, but for the last.
func doorbellRequest(ask recordedWords, last bool) *cq.SendRequest {
	r := &cq.SendRequest{Op: cq.OpSend, SGEs: []cq.SGE{{Addr: 1, Length: 1, LKey: 1}}}
	segments := ask.number("ds")
	switch {
	case !last:
	case segments == 1:
		r.SGEs = nil
	case ask.number("inline") != 0:
		r.Flags, r.SGEs, r.Data = cq.Inline, nil, make([]byte, segments*16-20)
	case segments > 2:
		r.Op = cq.OpWrite
		for len(r.SGEs) < int(segments)-2 {
			r.SGEs = append(r.SGEs, r.SGEs[0])
		}
	}
	return r
}
