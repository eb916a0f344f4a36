package mlx5

import (
	"bytes"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/cq"
)

var recordedOps = map[string]cq.Opcode{
	"send": cq.OpSend, "send-imm": cq.OpSendImm, "send-inv": cq.OpSendInvalidate, "write": cq.OpWrite, "write-imm": cq.OpWriteImm, "read": cq.OpRead,
	"cas": cq.OpCompareSwap, "faa": cq.OpFetchAdd, "local-inv": cq.OpLocalInvalidate, "bind": cq.OpBindMW,
}

var recordedTransports = map[string]Transport{"rc": RC, "uc": UC, "ud": UD}

// recordedSGEs reads the elements of a request.
func recordedSGEs(t *testing.T, s string) (sges []cq.SGE) {
	t.Helper()
	if s == "" {
		return nil
	}
	for _, e := range strings.Split(s, ",") {
		f := strings.Split(e, ":")
		if len(f) != 3 {
			t.Fatalf("element %q", e)
		}
		sges = append(sges, cq.SGE{Addr: parseNumber(t, f[0]), Length: uint32(parseNumber(t, f[1])), LKey: uint32(parseNumber(t, f[2]))})
	}
	return sges
}

// recordedRequest translates a request. Bytes of an inline one lie together here.
func recordedRequest(t *testing.T, value string, signalAll bool, addresses map[string]uint32) (r cq.SendRequest, type1 bool) {
	t.Helper()
	w := words(t, value)
	op, ok := recordedOps[w.m["op"]]
	if !ok {
		t.Fatalf("operation %q", w.m["op"])
	}
	r = cq.SendRequest{Op: op, Imm: w.number("imm"), InvalidateRKey: w.number("inv"), RemoteAddr: w.wide("raddr"), RKey: w.number("rkey"),
		SGEs: recordedSGEs(t, w.m["sge"]), Compare: w.wide("compare"), Operand: w.wide("swap") + w.wide("add"), DestQPN: w.number("dqpn"), QKey: w.number("qkey")}
	if !signalAll && !w.set("flags", "signaled") {
		r.Flags |= cq.Unsignaled
	}
	if w.set("flags", "fence") {
		r.Flags |= cq.Fence
	}
	if w.set("flags", "solicited") {
		r.Flags |= cq.Solicited
	}
	if w.set("flags", "inline") {
		r.Flags |= cq.Inline
		for _, part := range strings.Split(w.m["inline"], ",") {
			if part != "." {
				r.Data = append(r.Data, parseBytes(t, part)...)
			}
		}
	}
	if name := w.m["ah"]; name != "" {
		r.AH = addresses[name]
		if r.AH == 0 {
			t.Fatalf("address handle %q", name)
		}
	}
	if op == cq.OpBindMW {
		r.WindowRKey, r.RKey, r.RemoteAddr, r.WindowBytes, r.WindowLKey = w.number("mw"), w.number("newrkey"), w.wide("addr"), w.wide("len"), w.number("lkey")
		for name, right := range map[string]uint32{"local-write": 1, "remote-write": 2, "remote-read": 4, "remote-atomic": 8, "zero-based": 32} {
			if w.set("access", name) {
				r.WindowAccess |= right
			}
		}
		type1 = w.m["mwtype"] != "2"
	}
	return r, type1
}

// recordedAddress translates an address handle.
func recordedAddress(t *testing.T, value string) (string, *AddressVector) {
	t.Helper()
	w := words(t, value)
	a := &AddressVector{Ethernet: w.m["link"] == "eth", SL: uint8(w.number("sl")), StaticRate: uint8(w.number("rate")), Global: w.number("global") == 1,
		SourceIndex: uint8(w.number("sgid_index")), FlowLabel: w.number("flow_label"), TrafficClass: uint8(w.number("traffic_class")), HopLimit: uint8(w.number("hop_limit")),
		DestLID: uint16(w.number("dlid")), SourcePath: uint8(w.number("path_bits"))}
	if a.Global {
		copy(a.DestGID[:], parseBytes(t, w.m["dgid"]))
	}
	if a.Ethernet {
		copy(a.DestMAC[:], parseBytes(t, w.m["dmac"]))
		if w.m["gid_type"] == "roce2" {
			a.UDPPort = UDPSourcePort(a.FlowLabel, 0)
		}
		if a.SL > 7 {
			// libmlx5 takes three bits of it without a word.
			if _, err := a.Encode(); err == nil {
				t.Errorf("service level %d on Ethernet was taken", a.SL)
			}
			a.SL &= 7
		}
	}
	return w.m["name"], a
}

// recordedQueue is a send queue beside one of libmlx5's.
type recordedQueue struct {
	*SQ
	size      SendSize
	mem       []byte
	uar       []byte
	record    []byte
	addresses *AddressVectors
	signalAll bool
}

const recordedFill = 0xdb

func newRecordedQueue(t *testing.T, limits Limits, qp string) *recordedQueue {
	t.Helper()
	w := words(t, qp)
	size, err := SizeSend(limits, recordedTransports[w.m["type"]], w.number("max_send_wr"), w.number("max_send_sge"), w.number("max_inline"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if size.Requests != w.number("max_send_wr") || size.MaxSGE != w.number("max_send_sge") || size.MaxInline != w.number("max_inline") || size.Blocks != w.number("sq_wqe_count") {
		t.Fatalf("a queue of %s has size %+v", qp, size)
	}
	q := &recordedQueue{size: size, uar: aligned(adapterPage), record: aligned(recordBytes), signalAll: w.number("sig_all") == 1}
	bell, err := BlueFlame(q.uar[registersOffset : registersOffset+512])
	if err != nil {
		t.Fatal(err)
	}
	q.mem = guarded(t, size.Bytes, true)
	fill(q.mem)
	if size.Transport == UD {
		q.addresses = new(AddressVectors)
	}
	q.SQ, err = NewSQ(SQConfig{Memory: q.mem, Record: q.record, Doorbell: bell, QPN: w.number("qpn"), Size: size,
		Requests: cq.NewRequests(size.Requests, cq.SendSide, w.number("qpn"), new(cq.State)), Addresses: q.addresses})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func fill(b []byte) {
	for i := range b {
		b[i] = recordedFill
	}
}

// TestSendRecorded gives the requests of every recorded case to a send queue and
// compares all that it writes with what libmlx5 wrote: blocks, doorbell record,
// doorbell.
func TestSendRecorded(t *testing.T) {
	for _, file := range []string{"wqe_send.txt", "wqe_send_roce.txt"} {
		r := loadRecording(t, file)
		queues := map[string]*recordedQueue{}
		did := map[string]int{}
		for i := range r.cases {
			c := &r.cases[i]
			qp := c.one(t, "qp")
			q := queues[qp]
			if q == nil {
				q = newRecordedQueue(t, r.limits, qp)
				queues[qp] = q
			}
			did[q.replay(t, c)]++
		}
		t.Logf("%s: %d cases: %v", file, len(r.cases), did)
		if did["same"] < len(r.cases)*9/10 || did["type 1"] > 3 {
			t.Errorf("%s: only %v of %d cases were compared", file, did, len(r.cases))
		}
	}
}

// replay does one case and says what it was.
func (q *recordedQueue) replay(t *testing.T, c *recordedCase) string {
	t.Helper()
	addresses := map[string]uint32{}
	for _, v := range c.all("ah") {
		name, a := recordedAddress(t, v)
		n, err := q.addresses.Add(a)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		addresses[name] = n
		defer q.addresses.Remove(n)
	}
	posted, refused, _ := strings.Cut(strings.TrimPrefix(c.one(t, "result"), "errno "), " at ")
	requests := c.all("req")
	var last *cq.SendRequest
	if posted != "ok" {
		n := int(parseNumber(t, refused))
		if r, type1 := recordedRequest(t, requests[n], q.signalAll, addresses); !type1 {
			last = &r
		}
		requests = requests[:n]
	}
	start, end := uint16(parseNumber(t, c.one(t, "start"))), uint16(parseNumber(t, c.one(t, "end")))
	q.meet(t, c, start)
	q.SQ.requests = cq.NewRequests(q.size.Requests, cq.SendSide, q.qpn, new(cq.State))
	fill(q.mem)
	fill(q.uar)
	for _, v := range requests {
		r, type1 := recordedRequest(t, v, q.signalAll, addresses)
		if type1 {
			q.next, q.published = q.next+uint32(end-start), q.next+uint32(end-start)
			q.fence, q.publishedFence = ctrlSmallFence, ctrlSmallFence
			q.bell.at ^= q.bell.half
			return "type 1"
		}
		seq, _ := q.SQ.requests.Stage(1, r.Op, r.Length, false)
		r.WRID = cq.MakeWRID(5, cq.SendSide, seq)
		q.Put(&r)
	}
	q.SQ.requests.Commit()
	q.Publish()
	q.compare(t, c, start, end)
	if posted == "ok" {
		return "same"
	}
	// What libmlx5 refuses for want of room, the caller of Put does not Put.
	if q.SQ.requests.Room() == 0 {
		return "same"
	}
	if last != nil && !panics(func() { q.Put(last) }) {
		t.Errorf("%s: Put took what libmlx5 refuses", c.name)
	}
	return "same"
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}

// meet moves the queue to where libmlx5's was, if requests were not recorded
// between this case and the one before.
func (q *recordedQueue) meet(t *testing.T, c *recordedCase, start uint16) {
	t.Helper()
	fence := uint8(0)
	if c.has("after_umr") {
		fence = ctrlSmallFence
	}
	at := q.bell.at
	if bell := c.one(t, "bell"); bell != "none" {
		at = words(t, bell).number("offset") & q.bell.half
	}
	if uint16(q.next) != start {
		q.next, q.published, q.bell.at = uint32(start), uint32(start), at
		q.fence, q.publishedFence = fence, fence
	}
	if q.fence != fence {
		t.Errorf("%s: fence %#x, recorded %#x", c.name, q.fence, fence)
	}
	if q.bell.at != at {
		t.Errorf("%s: the doorbell is at half %#x, recorded %#x", c.name, q.bell.at, at)
	}
}

// compare compares what is in memory after a case.
func (q *recordedQueue) compare(t *testing.T, c *recordedCase, start, end uint16) {
	t.Helper()
	if uint16(q.next) != end {
		t.Errorf("%s: the queue ends at block %d, recorded %d", c.name, uint16(q.next), end)
		return
	}
	var wqe []byte
	for i, recorded := range c.all("bytes") {
		at := (uint32(start) + uint32(i)) << blockShift & q.mask
		block := q.mem[at : at+blockBytes]
		wqe = append(wqe, block...)
		if !matches(t, block, recorded) {
			t.Errorf("%s: block %d\n%s, recorded\n%s", c.name, i, dump(block), recorded)
		}
		fill(block)
	}
	if rest := bytes.TrimLeft(q.mem, "\xdb"); len(rest) != 0 {
		t.Errorf("%s: the ring was written past its requests, %d bytes before its end", c.name, len(rest))
	}
	// Where nothing was posted the word is what it was.
	if snd := c.one(t, "snd"); start != end && !matches(t, q.record[4:], snd) || start == end && !matches(t, []byte{0, 0, byte(end >> 8), byte(end)}, snd) {
		t.Errorf("%s: doorbell record %s, recorded %s", c.name, dump(q.record[4:]), c.one(t, "snd"))
	}
	if c.one(t, "bell") == "none" {
		if len(bytes.Trim(q.uar, "\xdb")) != 0 {
			t.Errorf("%s: a doorbell, recorded none", c.name)
		}
		return
	}
	w := words(t, c.one(t, "bell"))
	// Libmlx5 had another register for some queues.
	at, n := registersOffset+w.number("offset")&0x100, w.number("len")
	bell := q.uar[at : at+n]
	// Where it refused the last of several requests libmlx5 rang with what stood
	// in that one's place.
	if !matches(t, bell[:8], w.m["first"]) {
		t.Errorf("%s: doorbell %x, recorded %s", c.name, bell[:8], w.m["first"])
	}
	if n > 8 && !bytes.Equal(bell, wqe[:n]) {
		t.Errorf("%s: BlueFlame has\n%s of\n%s", c.name, dump(bell), dump(wqe))
	}
	fill(bell)
	if len(bytes.Trim(q.uar, "\xdb")) != 0 {
		t.Errorf("%s: the UAR was written past its doorbell of %d bytes at %#x", c.name, n, at)
	}
}
