package model

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
)

// sparse is memory that is wherever it is touched.
type sparse map[uint64][]byte

func (s sparse) each(addr uint64, n int, f func(page []byte, done int)) {
	for done := 0; done < n; {
		base := (addr + uint64(done)) &^ (pageSize - 1)
		if s[base] == nil {
			s[base] = make([]byte, pageSize)
		}
		page := s[base][addr+uint64(done)-base:]
		f(page, done)
		done += len(page)
	}
}

func (s sparse) Read(addr uint64, p []byte) error {
	s.each(addr, len(p), func(page []byte, done int) { copy(p[done:], page) })
	return nil
}

func (s sparse) Write(addr uint64, p []byte) error {
	s.each(addr, len(p), func(page []byte, done int) { copy(page, p[done:]) })
	return nil
}

func (s sparse) Publish(addr uint64, p []byte) error { return s.Write(addr, p) }

func (s sparse) Load32(addr uint64) (uint32, error) {
	var b [4]byte
	s.Read(addr, b[:])
	return binary.BigEndian.Uint32(b[:]), nil
}

// replay runs recorded requests on the model: with the recorded addresses, and with the
// model's numbers in the place of the recorder's.
type replay struct {
	t       *testing.T
	f       *File
	mem     sparse
	handles map[uint64]uint64
	fds     map[uint64]uint64
	pages   map[uint32]uint32 // UAR pages
}

// Where the answers of a request go: places that recorded addresses do not reach.
const answersAt = 0x10_0000_0000

// run runs one recorded call.
func (r *replay) run(call map[string]string, attrs []string) (err error, answers map[uint64][]byte) {
	const header, size = 24, 16
	ne := binary.NativeEndian
	b := make([]byte, header+size*len(attrs))
	object, method := uint16(num(r.t, call["object"])), uint16(num(r.t, call["method"]))
	ne.PutUint16(b, uint16(len(b)))
	ne.PutUint16(b[2:], object)
	ne.PutUint16(b[4:], method)
	ne.PutUint16(b[6:], uint16(len(attrs)))
	ne.PutUint32(b[16:], uint32(num(r.t, call["driver"])))
	next := uint64(answersAt)
	where := map[uint64]uint64{}
	lengths := map[uint64]int{}
	for i, line := range attrs {
		dir, rest, _ := strings.Cut(line, " ")
		words := strings.Fields(rest)
		id, w := num(r.t, words[0]), fields(rest)
		n := int(num(r.t, w["len"]))
		a := b[header+size*i:]
		ne.PutUint16(a, uint16(id))
		ne.PutUint16(a[2:], uint16(n))
		ne.PutUint16(a[4:], uint16(num(r.t, w["flags"])))
		var data []byte
		if len(words) > 3 {
			data = recordedBytes(r.t, strings.Join(words[3:], ""))
		}
		lengths[id] = n
		switch {
		case dir == "in" && n == 0:
			h, ok := r.space(object, uint16(id))[ne.Uint64(data)]
			if !ok {
				r.t.Fatalf("%s names %#x, which no call returned", line, ne.Uint64(data))
			}
			ne.PutUint64(a[8:], h)
		case dir == "in":
			r.rename(object, uint16(id), call["command"], data)
			if n <= 8 {
				copy(a[8:16], data)
				continue
			}
			r.mem.Write(next, data)
			ne.PutUint64(a[8:], next)
			next += uint64(n+7) &^ 7
		case n > 0:
			ne.PutUint64(a[8:], next)
			where[id] = next
			next += uint64(n+7) &^ 7
		}
	}
	err = r.f.Ioctl(b)
	answers = map[uint64][]byte{}
	for i, line := range attrs {
		id := num(r.t, strings.Fields(line)[1])
		if p, ok := where[id]; ok {
			answers[id] = make([]byte, lengths[id])
			r.mem.Read(p, answers[id])
		} else if strings.HasPrefix(line, "out") {
			answers[id] = append([]byte(nil), b[header+size*i+8:][:8]...)
		}
	}
	return err, answers
}

// space is where the number of an attribute belongs: a descriptor's among those, a handle's among
// those.
func (r *replay) space(object, id uint16) map[uint64]uint64 {
	switch (methodID{object, id}) {
	case methodID{abi.UVERBS_OBJECT_CQ, abi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL}, methodID{abi.UVERBS_OBJECT_CQ, abi.UVERBS_ATTR_CREATE_CQ_EVENT_FD},
		methodID{abi.UVERBS_OBJECT_QP, abi.UVERBS_ATTR_CREATE_QP_EVENT_FD}, methodID{abi.UVERBS_OBJECT_SRQ, abi.UVERBS_ATTR_CREATE_SRQ_EVENT_FD},
		methodID{abi.UVERBS_OBJECT_ASYNC_EVENT, abi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE}:
		return r.fds
	}
	return r.handles
}

// rename puts the model's numbers into the bytes of a request.
func (r *replay) rename(object, id uint16, command string, data []byte) {
	ne := binary.NativeEndian
	handle := func(off int) {
		h, ok := r.handles[uint64(ne.Uint32(data[off:]))]
		if !ok {
			r.t.Fatalf("%s names handle %#x, which no call returned", command, ne.Uint32(data[off:]))
		}
		ne.PutUint32(data[off:], uint32(h))
	}
	switch {
	case object == abi.UVERBS_OBJECT_CQ && id == abi.UVERBS_ATTR_UHW_IN && ne.Uint16(data[22:])&2 != 0:
		ne.PutUint16(data[24:], uint16(r.pages[uint32(ne.Uint16(data[24:]))]))
	case object == abi.UVERBS_OBJECT_QP && id == abi.UVERBS_ATTR_UHW_IN && ne.Uint32(data[28:])&1024 != 0:
		ne.PutUint32(data[36:], r.pages[ne.Uint32(data[36:])])
	case id != abi.UVERBS_ATTR_CORE_IN:
	case command == "REG_MR":
		handle(32)
	case command == "RESIZE_CQ", command == "ALLOC_MW", command == "QUERY_QP":
		handle(8)
	case command == "CREATE_AH":
		handle(16)
	case command == "MODIFY_QP":
		handle(64)
	case command == "EX_MODIFY_CQ", command == "MODIFY_SRQ":
		handle(0)
	}
}

// learn remembers the model's numbers for the recorder's.
func (r *replay) learn(call map[string]string, line string, answers map[uint64][]byte) {
	ne := binary.NativeEndian
	words := strings.Fields(line)
	if len(words) < 5 {
		return
	}
	id := num(r.t, words[1])
	recorded := recordedBytes(r.t, strings.Join(words[4:], ""))
	got := answers[id]
	switch num(r.t, fields(line)["len"]) {
	case 0:
		r.space(uint16(num(r.t, call["object"])), uint16(id))[uint64(ne.Uint32(recorded))] = ne.Uint64(got)
	default:
		switch {
		case id == uint64(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID) && call["object"] == "0x1008":
			r.pages[ne.Uint32(recorded)] = ne.Uint32(got)
		case id == abi.UVERBS_ATTR_CORE_OUT && call["command"] == "CREATE_COMP_CHANNEL":
			r.fds[uint64(ne.Uint32(recorded))] = uint64(ne.Uint32(got))
		case id == abi.UVERBS_ATTR_CORE_OUT && (call["command"] == "ALLOC_PD" || call["command"] == "REG_MR" || call["command"] == "ALLOC_MW" || call["command"] == "CREATE_AH"):
			r.handles[uint64(ne.Uint32(recorded))] = uint64(ne.Uint32(got))
		}
	}
}

// Every request of libmlx5 that the recorder took is a good one here too.
func TestTakesRecordedRequests(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		// Requests to the kernel are in the machine's byte order.
		t.Skip("declared skip: recorded on a little-endian machine")
	}
	var r *replay
	calls := 0
	all := recordedCalls(t)
	// Of contexts of other kinds only what differs is recorded: the event file and the PD of
	// the first one follow here too.
	var rest []recordedCall
	for _, k := range all[0].calls {
		if k.call["object"] == "0x10" || k.call["command"] == "ALLOC_PD" {
			rest = append(rest, k)
		}
	}
	for _, c := range all {
		if strings.HasSuffix(c.name, "open") {
			prefix := strings.TrimSuffix(c.name, "open")
			m, err := New(DeviceConfig{Name: "sim0", Ports: []PortConfig{{InfiniBand: true}}, CQEVersion0: prefix == "cqe0-", StaticUARs: prefix == "static-", NoBlueFlame: prefix == "nobf-"})
			if err != nil {
				t.Fatal(err)
			}
			r = &replay{t: t, mem: sparse{}, handles: map[uint64]uint64{}, fds: map[uint64]uint64{}, pages: map[uint32]uint32{}}
			if r.f, err = m.devices[0].Open(r.mem, nil); err != nil {
				t.Fatal(err)
			}
		}
		if strings.HasPrefix(c.name, "roce-") || strings.HasPrefix(c.name, "env-") || strings.Contains(c.name, "packet-based-credit") {
			continue // a part of a history that is not recorded whole, and what the device has not
		}
		t.Run(c.name, func(t *testing.T) {
			r.t = t
			if strings.HasSuffix(c.name, "-open") {
				c.calls = append(c.calls, rest...)
			}
			for _, k := range c.calls {
				calls++
				err, answers := r.run(k.call, k.attrs)
				want := request.Errno(0)
				switch k.result {
				case "ENOSPC":
					want = request.ENOSPC
				case "ENOTSUP":
					want = request.EOPNOTSUPP
				case "ok":
				default:
					t.Fatalf("result %q", k.result)
				}
				if c.name == "destroy-cq" {
					want = request.EBUSY // a queue pair of another case stands on it
				}
				if !errors.Is(err, want) && !(err == nil && want == 0) {
					t.Fatalf("%v: %v, want %v", k.call, err, want)
				}
				for _, line := range k.attrs {
					if err == nil && strings.HasPrefix(line, "out") {
						r.learn(k.call, line, answers)
					}
				}
				if c.name == "static-open" && k.call["command"] == "ALLOC_PD" {
					r.handles[1] = r.handles[2] // without a UAR before it
				}
			}
		})
	}
	if calls < 60 {
		t.Errorf("only %d calls", calls)
	}
}

type recordedCall struct {
	call   map[string]string
	attrs  []string
	result string
}

type callCase struct {
	name  string
	calls []recordedCall
}

// recordedCalls reads payloads.txt, where the order of lines matters.
func recordedCalls(t *testing.T) (all []callCase) {
	t.Helper()
	for _, c := range recordedLines(t, "payloads.txt") {
		k := callCase{name: c.name}
		for _, l := range c.lines {
			key, value, _ := strings.Cut(l, " = ")
			last := len(k.calls) - 1
			switch key {
			case "call":
				k.calls = append(k.calls, recordedCall{call: fields(value)})
			case "in", "out":
				k.calls[last].attrs = append(k.calls[last].attrs, key+" "+value)
			case "result":
				k.calls[last].result = value
			}
		}
		all = append(all, k)
	}
	return all
}
