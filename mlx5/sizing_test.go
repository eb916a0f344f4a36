package mlx5

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// TestSizingRecorded compares with what libmlx5 made of the same requests.
func TestSizingRecorded(t *testing.T) {
	for _, file := range []string{"sizing.txt", "sizing_small.txt"} {
		r := loadRecording(t, file)
		compared, refused := 0, 0
		for i := range r.cases {
			c := &r.cases[i]
			ask := words(t, c.one(t, "ask"))
			var ops Operations
			for _, name := range strings.Split(ask.m["ops"], ",") {
				if name != "" {
					op, ok := recordedOps[name]
					if !ok {
						t.Fatalf("%s: operation %q", c.name, name)
					}
					ops |= OperationsOf(op)
				}
			}
			send, err := SizeSend(r.limits, recordedTransports[ask.m["type"]], ask.number("send_wr"), ask.number("send_sge"), ask.number("inline"), ops)
			var recv RecvSize
			if err == nil && ask.number("srq") == 0 {
				recv, err = SizeRecv(r.limits, ask.number("recv_wr"), ask.number("recv_sge"))
			}
			if strings.HasPrefix(c.one(t, "got"), "errno") {
				if err == nil {
					t.Errorf("%s: %+v and %+v, recorded %s", c.name, send, recv, c.one(t, "got"))
				}
				refused++
				continue
			}
			got := words(t, c.one(t, "got"))
			if long := longest(ask.m["type"], ask.number("send_sge"), ask.number("inline")); long > 63 {
				// libmlx5 lets a request count 64 segments, in 6 bits.
				if err == nil {
					t.Errorf("%s: %+v, of requests of %d segments", c.name, send, long)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				continue
			}
			inline := got.number("inline")
			if int32(inline) < 0 {
				inline = 0 // libmlx5 goes below 0
			}
			if ask.m["type"] == "ud" {
				inline = min(inline, 63*16-16-48-4) // the same 6 bits
			}
			sge := send.MaxSGE
			if ask.number("send_wr") == 0 {
				sge, inline = got.number("send_sge"), 0 // libmlx5 returns what it was asked
			}
			if send.Requests != got.number("send_wr") || sge != got.number("send_sge") || send.MaxInline != inline || send.Blocks != got.number("sq_wqe_count") ||
				recv.Requests != got.number("recv_wr") || recv.Requests != got.number("rq_wqe_count") || recv.Shift != got.number("rq_wqe_shift") {
				t.Errorf("%s: %+v and %+v, recorded %s", c.name, send, recv, c.one(t, "got"))
			}
			if recv.Requests != 0 && recv.MaxSGE != got.number("recv_sge") {
				t.Errorf("%s: %d elements of a receive, recorded %s", c.name, recv.MaxSGE, c.one(t, "got"))
			}
			both := QueuePairSize{Send: send, Recv: recv}
			if (both.Bytes()+4095)&^4095 != int(got.number("buffer")) || both.SendOffset() != recv.Bytes {
				t.Errorf("%s: %d bytes, recorded %s", c.name, both.Bytes(), c.one(t, "got"))
			}
			compared++
		}
		t.Logf("%s: %d compared, %d refused", file, compared, refused)
		if compared < 30 || refused < 5 {
			t.Errorf("%s: only %d compared, %d refused", file, compared, refused)
		}
	}
}

// longest is how many segments the longest request has, of so many elements or
// bytes inline.
func longest(transport string, sge, inline uint32) uint32 {
	data := max(sge, (4+inline+15)/16)
	if transport == "ud" {
		return 1 + 3 + data
	}
	return 2 + data
}

// The examples of the layouts' description, and bounds one past which is refused.
func TestSizeSend(t *testing.T) {
	for _, c := range []struct {
		name                  string
		tr                    Transport
		requests, sge, inline uint32
		ops                   Operations
		want                  SendSize // Transport and Operations apart
		err                   string
	}{
		{name: "one of everything", tr: RC, requests: 1, sge: 1, want: SendSize{Requests: 1, MaxSGE: 1, MaxInline: 60, RequestBytes: 256, Blocks: 4, Bytes: 256}},
		{name: "three round up to four", tr: RC, requests: 3, sge: 1, want: SendSize{Requests: 4, MaxSGE: 1, MaxInline: 60, RequestBytes: 256, Blocks: 16, Bytes: 1024}},
		{name: "no data", tr: RC, requests: 1, want: SendSize{Requests: 1, RequestBytes: 192, Blocks: 4, Bytes: 256}},
		{name: "sends only", tr: RC, requests: 10, sge: 3, ops: OperationsOf(cq.OpSend), want: SendSize{Requests: 16, MaxSGE: 3, MaxInline: 44, RequestBytes: 64, Blocks: 16, Bytes: 1024}},
		{name: "writes only", tr: UC, requests: 8, sge: 2, ops: OperationsOf(cq.OpWrite), want: SendSize{Requests: 8, MaxSGE: 2, MaxInline: 28, RequestBytes: 64, Blocks: 8, Bytes: 512}},
		{name: "atomics only", tr: RC, requests: 8, sge: 1, ops: OperationsOf(cq.OpFetchAdd), want: SendSize{Requests: 8, MaxSGE: 1, MaxInline: 12, RequestBytes: 64, Blocks: 8, Bytes: 512}},
		{name: "datagrams", tr: UD, requests: 4, sge: 1, inline: 60, want: SendSize{Requests: 4, MaxSGE: 1, MaxInline: 60, RequestBytes: 128, Blocks: 8, Bytes: 512}},
		{name: "a queue of 3 blocks a request", tr: RC, requests: 5, sge: 1, inline: 61, ops: OperationsOf(cq.OpSend, cq.OpWrite, cq.OpCompareSwap),
			want: SendSize{Requests: 8, MaxSGE: 1, MaxInline: 76, RequestBytes: 128, Blocks: 16, Bytes: 1024}},
		{name: "most datagram elements", tr: UD, requests: 1, sge: 59, want: SendSize{Requests: 1, MaxSGE: 59, MaxInline: 940, RequestBytes: 1024, Blocks: 16, Bytes: 1024}},
		{name: "one more", tr: UD, requests: 1, sge: 60, err: "60 elements take 1024 bytes, a request can say 1008"},
		{name: "most datagram bytes inline", tr: UD, requests: 1, inline: 940, want: SendSize{Requests: 1, MaxInline: 940, RequestBytes: 1024, Blocks: 16, Bytes: 1024}},
		{name: "one more byte", tr: UD, requests: 1, inline: 941, err: "941 bytes inline: a request can have 940"},
		{name: "most blocks", tr: RC, requests: 8192, sge: 1, want: SendSize{Requests: 8192, MaxSGE: 1, MaxInline: 60, RequestBytes: 256, Blocks: 32768, Bytes: 1 << 21}},
		{name: "more blocks", tr: RC, requests: 8193, sge: 1, err: "take 65536 blocks of 64, the device has 32768"},
		{name: "no end of requests", tr: RC, requests: 1<<32 - 1, sge: 1, err: "the device has 32768"},
		{name: "no end of elements", tr: RC, requests: 1, sge: 1<<32 - 1, err: "the device has 1024"},
		{name: "no end of inline", tr: RC, requests: 1, inline: 1<<32 - 1, err: "the device has 1024"},
		{name: "no requests", tr: RC, want: SendSize{}},
		{name: "reads on UC", tr: UC, requests: 1, ops: OperationsOf(cq.OpRead), err: "UC for read, which it does not have"},
		{name: "atomic write", tr: RC, requests: 1, ops: OperationsOf(cq.OpAtomicWrite), err: "RC for atomic write"},
		{name: "another transport", tr: 9, requests: 1, err: "Transport(9)"},
	} {
		got, err := SizeSend(testLimits, c.tr, c.requests, c.sge, c.inline, c.ops)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %q", c.name, err, c.err)
			}
			continue
		}
		c.want.Transport, c.want.Operations = c.tr, c.ops
		if c.ops == 0 {
			c.want.Operations = c.tr.Operations()
		}
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v, want %+v", c.name, got, err, c.want)
		}
	}
}

// TestSizesHold: whatever is asked for, what comes out fits the device and itself,
// has at least what was asked for, and a queue can be made of it.
func TestSizesHold(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	d, err := UncachedDoorbell(aligned(8))
	if err != nil {
		t.Fatal(err)
	}
	made := 0
	for range 3_000 {
		l := Limits{SendBytes: 64 << rng.IntN(5), RecvBytes: 16 << rng.IntN(6), SendBlocks: 1 << rng.IntN(16), RecvRequests: 1 << rng.IntN(16), SharedRequests: 1<<rng.IntN(17) - uint32(rng.IntN(2))}
		tr := Transport(rng.IntN(3))
		ops := Operations(rng.Uint32()) & tr.Operations()
		ask := func(n int) uint32 { return uint32(rng.IntN(1 << rng.IntN(n))) }
		requests, sge, inline := ask(12), ask(8), ask(11)
		s, err := SizeSend(l, tr, requests, sge, inline, ops)
		if err == nil && requests > 0 {
			if s.Requests < requests || s.MaxSGE < sge || s.MaxInline < inline || s.RequestBytes > l.SendBytes || s.Blocks > l.SendBlocks || s.Bytes != int(s.Blocks)*64 {
				t.Fatalf("%v of %d, %d, %d with %+v is %+v", tr, requests, sge, inline, l, s)
			}
			c := SQConfig{Memory: aligned(s.Bytes), Record: aligned(8), Doorbell: d, Size: s, Requests: cq.NewRequests(s.Requests, cq.SendSide, 0, new(cq.State))}
			if tr == UD {
				c.Addresses = new(AddressVectors)
			}
			if _, err := NewSQ(c); err != nil {
				t.Fatalf("%+v: %v", s, err)
			}
			made++
		}
		r, err := SizeRecv(l, requests, sge)
		if err == nil && requests > 0 {
			if r.Requests < requests || r.MaxSGE < sge || r.RequestBytes > l.RecvBytes || r.Bytes < 64 || r.Bytes != int(r.Requests)<<r.Shift {
				t.Fatalf("%d, %d with %+v is %+v", requests, sge, l, r)
			}
			if _, err := NewRQ(RQConfig{Memory: aligned(r.Bytes), Record: aligned(8), Size: r, Requests: cq.NewRequests(r.Requests, cq.RecvSide, 0, new(cq.State))}); err != nil {
				t.Fatalf("%+v: %v", r, err)
			}
			made++
		}
		h, err := SizeShared(l, requests, sge)
		if err == nil {
			if h.Requests < requests || h.MaxSGE < sge || h.RequestBytes > l.RecvBytes || h.Elements <= requests || h.Bytes != int(h.Elements)<<h.Shift {
				t.Fatalf("shared, %d, %d with %+v is %+v", requests, sge, l, h)
			}
			if _, err := NewSRQ(SRQConfig{Memory: aligned(h.Bytes), Record: aligned(8), Size: h, Requests: cq.NewSharedRequests(requests)}); err != nil {
				t.Fatalf("%+v: %v", h, err)
			}
			made++
		}
	}
	if made < 1_500 {
		t.Errorf("only %d queues were made", made)
	}
}

func TestSizeErrors(t *testing.T) {
	for name, f := range map[string]func() error{
		"receives":             func() error { _, err := SizeRecv(testLimits, 32769, 1); return err },
		"elements of receives": func() error { _, err := SizeRecv(testLimits, 1, 33); return err },
		"all elements":         func() error { _, err := SizeRecv(testLimits, 1, 1<<32-1); return err },
		"receives that 16 bits count": func() error {
			_, err := SizeRecv(Limits{RecvBytes: 512, RecvRequests: 1 << 20}, 32769, 1)
			return err
		},
		"blocks that 16 bits count": func() error {
			_, err := SizeSend(Limits{SendBytes: 1024, SendBlocks: 1 << 20}, RC, 8193, 1, 0, 0)
			return err
		},
		"a shared queue of 2 GiB": func() error {
			_, err := SizeShared(Limits{RecvBytes: 1 << 15, SharedRequests: 65535}, 65535, 2047)
			return err
		},
		"shared receives": func() error { _, err := SizeShared(testLimits, 32768, 1); return err },
		"shared receives of 16 bit": func() error {
			_, err := SizeShared(Limits{RecvBytes: 512, SharedRequests: 1 << 20}, 1<<16, 1)
			return err
		},
		"elements of shared ones": func() error { _, err := SizeShared(testLimits, 1, 32); return err },
		"all elements of shared":  func() error { _, err := SizeShared(testLimits, 1, 1<<32-1); return err },
	} {
		if err := f(); err == nil || !strings.HasPrefix(err.Error(), "mlx5: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for tr, want := range map[Transport]string{RC: "RC", UC: "UC", UD: "UD", 7: "Transport(7)"} {
		if tr.String() != want {
			t.Errorf("%v, want %s", tr, want)
		}
	}
}
