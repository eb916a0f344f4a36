package mlx5

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"
)

// TestPayloadsRecorded compares payloads of ours with those that libmlx5 sent, for
// the same sizes and addresses, and reads the answers. They were recorded on a
// little-endian machine, and payloads are in the machine's byte order.
func TestPayloadsRecorded(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("declared skip: recorded on a little-endian machine")
	}
	r := loadRecording(t, "payloads.txt")
	did := map[string]int{}
	var ctx *Context
	for i := range r.cases {
		c := &r.cases[i]
		for _, call := range c.calls(t) {
			kind, _, _ := strings.Cut(call.name, " ")
			if strings.Contains(call.name, "command=RESIZE_CQ") {
				kind = "RESIZE_CQ"
			} else if strings.Contains(call.name, "command=CREATE_AH") {
				kind = "CREATE_AH"
			}
			var w recordedWords
			if c.has("words") {
				w = words(t, c.one(t, "words"))
			}
			var got []byte
			var err error
			switch kind {
			case "DEVICE.GET_CONTEXT":
				got, err = ContextRequest{DynamicUARs: true, DevX: true}.Encode()
				if ctx, _ = ParseContext(call.out[0x1001], defaultExclusive, 4096); ctx == nil {
					t.Fatalf("%s: %v", c.name, err)
				}
				if ctx.Limits != r.limits || ctx.CQEVersion == 0 != strings.HasPrefix(c.name, "cqe0") || ctx.Dynamic() == strings.HasPrefix(c.name, "static") || ctx.BlueFlameBytes == 0 != strings.HasPrefix(c.name, "nobf") {
					t.Errorf("%s: %+v", c.name, ctx)
				}
			case "MLX5_UAR.ALLOC":
				kindOf := UARType(binary.NativeEndian.Uint64(call.in[0x1001]))
				if call.result != "ok" {
					continue
				}
				u, err := ParseUAR(kindOf, binary.NativeEndian.Uint64(call.out[0x1002]), binary.NativeEndian.Uint32(call.out[0x1003]), binary.NativeEndian.Uint32(call.out[0x1004]), 4096)
				if err != nil || int64(u.PageID)*4096 != u.MapOffset || kindOf > UARUncached {
					t.Errorf("%s: %+v, %v", c.name, u, err)
				}
				did[kind]++
				continue
			case "CQ.CREATE":
				got, _, err = CreateCQ{Buffer: w.wide("buf"), Record: w.wide("db"), EntryBytes: int(w.number("cqe_size")), DynamicUAR: ctx.Dynamic()}.Encode()
				if n, err := ParseCreateCQ(call.out[0x1001]); err != nil || n != w.number("cqn") {
					t.Errorf("%s: CQ %#x, %v", c.name, n, err)
				}
			case "RESIZE_CQ":
				got, err = ResizeCQ{Buffer: w.wide("buf"), EntryBytes: int(w.number("cqe_size"))}.Encode()
			case "SRQ.CREATE":
				got, err = CreateSRQ{Buffer: w.wide("buf"), Record: w.wide("db")}.Encode()
				if n, err := ParseCreateSRQ(call.out[0x1001]); err != nil || n != w.number("srqn") {
					t.Errorf("%s: SRQ %#x, %v", c.name, n, err)
				}
			case "CREATE_AH":
				a := AddressVector{Ethernet: true, Global: true, SL: uint8(w.number("sl")), StaticRate: uint8(w.number("rate")), SourceIndex: uint8(w.number("sgid_index")), FlowLabel: w.number("flow_label"),
					HopLimit: uint8(w.number("hop_limit")), TrafficClass: uint8(w.number("traffic_class"))}
				want := parseBytes(t, w.m["av"])
				copy(a.DestGID[:], want[32:])
				if !strings.HasSuffix(c.name, "v1") {
					a.UDPPort = UDPSourcePort(a.FlowLabel, 0)
				}
				if a.DestMAC, err = ParseCreateAH(call.out[0x1001]); err != nil {
					t.Errorf("%s: %v", c.name, err)
				}
				if av, err := a.Encode(); err != nil || !bytes.Equal(av[:], want) {
					t.Errorf("%s: %s, %v, recorded %s", c.name, dump(av[:]), err, dump(want))
				}
				did[kind]++
				continue
			case "QP.CREATE":
				got, err = recordedCreateQP(t, c.name, w, call.in[0x1000], ctx)
				if res, err := ParseCreateQP(call.out[0x1001]); err != nil || res.HasRegister == ctx.Dynamic() {
					t.Errorf("%s: %+v, %v", c.name, res, err)
				}
			default:
				continue
			}
			if err != nil || !bytes.Equal(got, call.in[0x1000]) {
				t.Errorf("%s: %s: %v\n%s, recorded\n%s", c.name, kind, err, dump(got), dump(call.in[0x1000]))
			}
			did[kind]++
		}
	}
	t.Log(did)
	for kind, n := range map[string]int{"DEVICE.GET_CONTEXT": 4, "MLX5_UAR.ALLOC": 10, "CQ.CREATE": 9, "RESIZE_CQ": 1, "SRQ.CREATE": 1, "CREATE_AH": 1, "QP.CREATE": 14} {
		if did[kind] < n {
			t.Errorf("%s: %d compared, want %d", kind, did[kind], n)
		}
	}
}

// recordedCreateQP makes the payload of a queue pair for what was asked; flags that
// are a choice of the program are taken from the recorded one, at offset 28.
func recordedCreateQP(t *testing.T, name string, w recordedWords, recorded []byte, ctx *Context) ([]byte, error) {
	t.Helper()
	var asked []uint32
	for _, n := range strings.Split(w.m["asked"], ",") {
		asked = append(asked, uint32(parseNumber(t, n)))
	}
	send, err := SizeSend(ctx.Limits, recordedTransports[w.m["type"]], asked[0], asked[2], asked[4], 0)
	if err != nil {
		return nil, err
	}
	var recv RecvSize
	if w.number("srq") == 0 {
		if recv, err = SizeRecv(ctx.Limits, asked[1], asked[3]); err != nil {
			return nil, err
		}
	}
	r := CreateQP{Buffer: w.wide("rq_buf"), Record: w.wide("db"), Size: QueuePairSize{Send: send, Recv: recv}, DynamicUAR: ctx.Dynamic(),
		UserIndex: binary.NativeEndian.Uint32(recorded[32:]), UAR: binary.NativeEndian.Uint32(recorded[36:])}
	flags := binary.NativeEndian.Uint32(recorded[28:])
	r.ScatterToCQE, r.ScatterRequester = flags&2 != 0, flags&256 != 0
	b, err := r.Encode(ctx.CQEVersion)
	if err == nil && flags&512 != 0 { // packet based credits, which this library does not offer
		binary.NativeEndian.PutUint32(b[28:], binary.NativeEndian.Uint32(b[28:])|512)
	}
	if uint64(w.wide("sq_buf")) != r.Buffer+uint64(r.Size.SendOffset()) {
		t.Errorf("%s: the send queue is at %#x, recorded %s", name, r.Buffer+uint64(r.Size.SendOffset()), w.m["sq_buf"])
	}
	return b, err
}

// recordedCall is an ioctl: its attributes in and out, by id.
type recordedCall struct {
	name, result string
	in, out      map[uint32][]byte
}

func (c *recordedCase) calls(t *testing.T) (calls []recordedCall) {
	t.Helper()
	for _, l := range c.lines {
		switch l.key {
		case "call":
			calls = append(calls, recordedCall{name: l.value, in: map[uint32][]byte{}, out: map[uint32][]byte{}})
		case "result":
			calls[len(calls)-1].result = l.value
		case "in", "out":
			f := strings.Fields(l.value)
			if len(f) < 4 {
				continue // not answered
			}
			b, err := hex.DecodeString(f[3])
			if err != nil {
				t.Fatal(err)
			}
			id := uint32(parseNumber(t, f[0]))
			if call := &calls[len(calls)-1]; l.key == "in" {
				call.in[id] = b
			} else {
				call.out[id] = b
			}
		}
	}
	return calls
}
