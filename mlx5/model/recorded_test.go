package model

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/abi/request"
)

// These tests hold the model's readers and its writer against bytes of stock libmlx5: see
// ../testdata/recorded/README.md. Nothing of package mlx5 is between them.

// recordedCase is a case of a recording: values by key, in order.
type recordedCase struct {
	name string
	keys map[string][]string
}

func (c *recordedCase) one(key string) string {
	if v := c.keys[key]; len(v) > 0 {
		return v[0]
	}
	return ""
}

func recorded(t *testing.T, file string) (cases []recordedCase) {
	t.Helper()
	for _, c := range recordedLines(t, file) {
		r := recordedCase{c.name, map[string][]string{}}
		for _, l := range c.lines {
			key, value, _ := strings.Cut(l, " =")
			r.keys[key] = append(r.keys[key], strings.TrimSpace(value))
		}
		cases = append(cases, r)
	}
	return cases
}

// linesCase is a case as its lines.
type linesCase struct {
	name  string
	lines []string
}

func recordedLines(t *testing.T, file string) (cases []linesCase) {
	t.Helper()
	text, err := os.ReadFile("../testdata/recorded/" + file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "case "); ok {
			cases = append(cases, linesCase{name: name})
		} else if len(cases) > 0 && strings.Contains(line, " =") {
			c := &cases[len(cases)-1]
			c.lines = append(c.lines, line)
		}
	}
	if len(cases) == 0 {
		t.Fatalf("no cases in %s", file)
	}
	return cases
}

// fields are the name=value words of a line.
func fields(line string) map[string]string {
	m := map[string]string{}
	for _, w := range strings.Fields(line) {
		k, v, _ := strings.Cut(w, "=")
		m[k] = v
	}
	return m
}

func num(t *testing.T, s string) uint64 {
	t.Helper()
	if s == "" {
		return 0
	}
	v, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// recordedBytes reads bytes; what libmlx5 did not write is junk.
func recordedBytes(t *testing.T, s string) []byte {
	t.Helper()
	s = strings.NewReplacer(" ", "", "--", "ee", "??", "ee").Replace(s)
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// window is memory that begins at an address.
type window struct {
	base uint64
	b    []byte
}

func (w window) at(addr uint64, n int) ([]byte, error) {
	if addr < w.base || addr-w.base > uint64(len(w.b)) || uint64(n) > uint64(len(w.b))-(addr-w.base) {
		return nil, request.EFAULT
	}
	return w.b[addr-w.base:][:n], nil
}

func (w window) Read(addr uint64, p []byte) error {
	b, err := w.at(addr, len(p))
	copy(p, b)
	return err
}

func (w window) Write(addr uint64, p []byte) error {
	b, err := w.at(addr, len(p))
	copy(b, p)
	return err
}

func (w window) Publish(addr uint64, p []byte) error { return w.Write(addr, p) }

func (w window) Load32(addr uint64) (uint32, error) {
	b, err := w.at(addr, 4)
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint32(b), nil
}

// bareQP is a queue pair without a program.
func bareQP(t *testing.T, typ string, qpn, blocks uint32, mem Memory) *qp {
	t.Helper()
	m, err := New(DeviceConfig{Name: "sim0"})
	if err != nil {
		t.Fatal(err)
	}
	d := m.devices[0]
	f, err := d.Open(mem, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &qp{f: f, d: d, qpn: qpn, typ: map[string]uint8{"rc": typeRC, "uc": typeUC, "ud": typeUD}[typ], sendBuf: 0x10000, blocks: blocks}
}

func TestReadsRecordedSends(t *testing.T) {
	n := 0
	for _, file := range []string{"wqe_send.txt", "wqe_send_roce.txt"} {
		for _, c := range recorded(t, file) {
			if len(c.keys["bytes"]) == 0 {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				of := fields(c.one("qp"))
				blocks := uint32(num(t, of["sq_wqe_count"]))
				mem := window{0x10000, make([]byte, blocks*blockBytes)}
				q := bareQP(t, of["type"], uint32(num(t, of["qpn"])), blocks, mem)
				start, end := uint16(num(t, c.one("start"))), uint16(num(t, c.one("end")))
				for i, line := range c.keys["bytes"] {
					copy(mem.b[(uint32(start)+uint32(i))%blocks*blockBytes:], recordedBytes(t, line))
				}
				q.sendCI, q.sendPI = start, end
				ahs := map[string]map[string]string{}
				for _, line := range c.keys["ah"] {
					a := fields(line)
					ahs[a["name"]] = a
				}
				for i := 0; q.sendCI != end; i++ {
					var w wqe
					if vendor := q.fetch(&w); vendor != 0 {
						t.Fatalf("request %d: refused with %#x", i, vendor)
					}
					checkRecordedSend(t, &w, fields(c.keys["req"][i]), of["sig_all"] == "1", ahs)
					q.sendCI += w.blocks
					n++
				}
			})
		}
	}
	if n < 100 {
		t.Errorf("only %d requests", n)
	}
}

var recordedOps = map[string]uint8{
	"send": wqeSend, "send-imm": wqeSendImm, "send-inv": wqeSendInv, "write": wqeWrite, "write-imm": wqeWriteImm, "read": wqeRead,
	"cas": wqeCompSwap, "faa": wqeFetchAdd, "bind": wqeUMR, "local-inv": wqeUMR,
}

// checkRecordedSend compares a request that was read with what was asked of libmlx5.
func checkRecordedSend(t *testing.T, w *wqe, req map[string]string, sigAll bool, ahs map[string]map[string]string) {
	t.Helper()
	check := func(what string, got, want any) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %v, want %v (%v)", what, got, want, req)
		}
	}
	op := req["op"]
	check("opcode", w.opcode, recordedOps[op])
	check("signalled", w.ce == ceSignal, sigAll || strings.Contains(req["flags"], "signaled"))
	check("solicited", w.solicit, strings.Contains(req["flags"], "solicited"))
	for key, got := range map[string]uint64{
		"imm": uint64(w.imm), "inv": uint64(w.imm), "mw": uint64(w.imm), "raddr": w.remote, "rkey": uint64(w.rkey),
		"compare": w.compare, "swap": w.swapAdd, "add": w.swapAdd, "qkey": uint64(w.av.qkey), "dqpn": uint64(w.av.dqpn),
	} {
		if req[key] != "" {
			check(key, got, num(t, req[key]))
		}
	}
	var want []segment
	for _, s := range strings.Split(req["sge"], ",") {
		p := strings.Split(s, ":")
		if s == "" || p[1] == "0" {
			continue // libmlx5 leaves out empty ones
		}
		g := segment{uint32(num(t, p[1])), uint32(num(t, p[2])), num(t, p[0])}
		if w.isAtomic() {
			g.n = 8
		}
		want = append(want, g)
	}
	check("data pointers", w.local, want)
	inline := strings.NewReplacer(",", "", ".", "").Replace(req["inline"])
	check("inline data", hex.EncodeToString(w.inline), inline)
	if a := ahs[req["ah"]]; a != nil {
		checkRecordedVector(t, &w.av, a)
	}
}

func checkRecordedVector(t *testing.T, v *addressVector, a map[string]string) {
	t.Helper()
	eth, global := a["link"] == "eth", a["global"] == "1"
	sl := num(t, a["sl"])
	if eth {
		sl = sl & 7 << 1
	}
	if !v.extended || uint64(v.slRate&0xf) != sl || (v.grh&avGRH != 0) != (global && !eth) {
		t.Errorf("address vector %+v of %v", v, a)
	}
	if global && (hex.EncodeToString(v.gid[:]) != a["dgid"] || uint64(v.grh>>avSGIDShift&0xff) != num(t, a["sgid_index"]) || uint64(v.grh&avFlowMask) != num(t, a["flow_label"]) ||
		uint64(v.hop) != num(t, a["hop_limit"]) || uint64(v.class) != num(t, a["traffic_class"])) {
		t.Errorf("address vector %+v of %v", v, a)
	}
	if eth && hex.EncodeToString(v.mac[:]) != a["dmac"] || a["gid_type"] == "roce2" && v.dlid < rocePortsFrom || !eth && uint64(v.dlid) != num(t, a["dlid"]) {
		t.Errorf("address vector %+v of %v", v, a)
	}
}

func TestReadsRecordedReceives(t *testing.T) {
	n := 0
	for _, c := range recorded(t, "recv.txt") {
		of := fields(c.one("rq"))
		shift := num(t, of["rq_wqe_shift"])
		q := bareQP(t, of["type"], 0x100, 0, window{})
		for i, line := range c.keys["bytes"] {
			list, vendor := q.segments(&recvWQE{raw: recordedBytes(t, line)})
			var want []segment
			for _, s := range strings.Split(fields(c.keys["req"][i])["sge"], ",") {
				if p := strings.Split(s, ":"); s != "" && p[1] != "0" {
					want = append(want, segment{uint32(num(t, p[1])), uint32(num(t, p[2])), num(t, p[0])})
				}
			}
			if c.name == "rc-sge4-2GiB" {
				// The count has 31 bits: libmlx5 writes into the one above, which
				// the device takes for inline data, and that there is not in receives.
				if vendor != vendInlineScatter {
					t.Errorf("%s: %v, vendor %#x", c.name, list, vendor)
				}
				continue
			}
			if vendor != 0 || !slices.Equal(list, want) || 1<<shift != len(recordedBytes(t, line)) {
				t.Errorf("%s: %v, vendor %#x; want %v", c.name, list, vendor, want)
			}
			n++
		}
	}
	if n < 20 {
		t.Errorf("only %d receives", n)
	}
}

// The recorded history of a shared receive queue, from one creation to the next: the
// model takes receives in the order in which libmlx5 posted them.
func TestReadsRecordedSharedReceives(t *testing.T) {
	taken := 0
	for _, file := range []string{"srq.txt", "srq_nowait.txt"} {
		var s *srq
		var mem window
		var posted []uint64 // entries, in the order of the list
		for _, c := range recorded(t, file) {
			if got := fields(c.one("got")); got["kernel_max_wr"] != "" {
				q := bareQP(t, "rc", 0x100, 0, window{})
				mem = window{0x20000, make([]byte, num(t, got["buffer"])+8)}
				q.f.mem = mem
				s = &srq{f: q.f, d: q.d, buf: mem.base, db: mem.base + num(t, got["buffer"]), entries: uint32(num(t, got["kernel_max_wr"])) + 1, stride: uint32(num(t, got["wqe_size"]))}
				posted = nil
			}
			if strings.Contains(c.name, "odp-fault") {
				break // the model has no page faults
			}
			// The recorder completes entries in any order. The device takes them in that
			// of the list, which is that of posting.
			for range strings.Fields(c.one("complete")) {
				var b [maxRecvBytes * 2]byte
				index, ok := s.next(b[:])
				if !ok || uint64(index) != posted[0] {
					t.Fatalf("%s %s: entry %d is next (%v), %d was posted", file, c.name, index, ok, posted[0])
				}
				posted = posted[1:]
				s.take(b[:])
				taken++
			}
			for _, l := range strings.Split(c.one("links"), ",") {
				if i, next, ok := strings.Cut(l, ":"); ok {
					binary.BigEndian.PutUint16(mem.b[uint32(num(t, i))*s.stride+2:], uint16(num(t, next)))
				}
			}
			for i, line := range c.keys["bytes"] {
				entry := num(t, c.keys["wqe"][i])
				copyRecorded(t, mem.b[uint32(entry)*s.stride:], line)
				posted = append(posted, entry)
			}
			copyRecorded(t, mem.b[len(mem.b)-8:], strings.Fields(c.one("srq"))[0])
		}
		for _, v := range s.d.m.Violations() {
			t.Errorf("%s: %s", file, v)
		}
	}
	if taken < 5 {
		t.Errorf("only %d receives taken", taken)
	}
}

// copyRecorded writes those bytes that libmlx5 wrote.
func copyRecorded(t *testing.T, dst []byte, line string) {
	t.Helper()
	for i, s := 0, strings.ReplaceAll(line, " ", ""); i < len(s)/2; i++ {
		if h := s[2*i : 2*i+2]; h != "--" && h != "??" {
			dst[i] = byte(num(t, "0x"+h))
		}
	}
}
