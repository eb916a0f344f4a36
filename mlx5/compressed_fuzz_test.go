package mlx5

import (
	"bytes"
	"testing"

	"github.com/goverbs/goverbs/cq"
)

// expanded is what a ring of compressed completions says from index start on, for some
// laps, as plain entries; nil for what is none. It is slow and obvious, and changes
// mem as software has to.
func expanded(mem []byte, size int, start, laps uint32, enhanced bool) (all [][]byte) {
	n := uint32(len(mem) / size)
	entry := func(i uint32) []byte { return mem[int(i%n)*size:][:size] }
	var title []byte
	for i := start; i < start+laps*n; {
		e := bytes.Clone(entry(i))
		cqe := e[size-64:]
		opcode, format := cqe[63]>>4, cqe[63]>>2&3
		if enhanced && (cqe[62] != byte(i/n) || opcode == 15 && format != 3) {
			return all
		}
		if !enhanced && (uint32(cqe[63]&1) != i/n&1 || opcode == 15) {
			return all
		}
		count := uint32(opcode) + 1
		bad := count > 7 || count > n || title == nil
		if !enhanced {
			count = big.Uint32(cqe[44:])
			bad = count < 2 || count > n || opcode > 4
		}
		switch {
		case format != 3:
			if enhanced && opcode <= 4 {
				title = bytes.Clone(e)
			}
			all = append(all, e)
			i++
			continue
		case bad:
			all = append(all, nil)
			i++
			continue
		}
		var minis []byte
		if !enhanced {
			title = bytes.Clone(e)
		}
		first := big.Uint16(title[size-4:])
		for k := uint32(0); k < count; k++ {
			if enhanced {
				minis = cqe
			} else if k%8 == 0 {
				minis = bytes.Clone(entry(i + map[bool]uint32{true: 1}[k == 0])[size-64:])
			}
			one := bytes.Clone(title)
			o := one[size-64:]
			o[63] &^= 0xc
			mini := minis[k%8*8:][:8]
			counter := first + uint16(k)
			if enhanced {
				counter++
			}
			if o[63]>>4 == 0 {
				counter = big.Uint16(mini)
			}
			big.PutUint16(o[60:], counter)
			copy(o[44:48], mini[4:])
			if enhanced {
				if o[63]>>4 != 0 {
					big.PutUint16(title[size-4:], counter)
				}
			} else {
				copy(entry(i)[size-4:], []byte{0, 0, 0, 0xf0})
			}
			all = append(all, one)
			i++
		}
	}
	return all
}

// FuzzMiniCQE: whatever is in a ring, it says the same as the plain entries that it
// expands to.
func FuzzMiniCQE(f *testing.F) {
	const entries = 8
	for i, cs := range [][]completion{
		{{opcode: 2, uidx: qpOpen, qpn: 0x101, counter: 0xfffe, bytes: 1}, {opcode: 2, counter: 0xffff, bytes: 2}, {opcode: 2, bytes: 3}},
		{{opcode: 0, uidx: qpOpen, qpn: 0x101, counter: 0xfffe}, {counter: 2}, {counter: 3}, {counter: 4}},
		{{opcode: 3, uidx: qpUD, qpn: 0x105}, {opcode: 3, counter: 1}},
		{{opcode: 2, uidx: qpSRQ, qpn: 0x106, counter: 3}, {opcode: 2, counter: 4}, {opcode: 2, counter: 5}, {opcode: 2, counter: 6}, {}, {}, {}, {}},
	} {
		for _, choice := range []byte{0, 1, 2, 3} {
			size := 64 + 64*int(choice>>1)
			d := &compressor{newCompleter(make([]byte, entries*size), make([]byte, 8), size), choice&1 != 0}
			for k := range uint32(entries) {
				d.entry(k)[size-2], d.entry(k)[size-1] = 0xff, 0xf0
			}
			d.producer = uint32(i) // across the end of the ring
			d.block(cs, false)
			if d.enhanced {
				d.block(cs[1:], true)
			}
			d.producer = d.producer&^7 | 7
			d.one(completion{opcode: 13, uidx: qpOpen, qpn: 0x101, counter: 0xffff})
			f.Add(d.mem, choice, byte(i))
		}
	}
	f.Add(make([]byte, 64*entries), byte(1), byte(0))
	f.Add(make([]byte, 64*entries), byte(32), byte(0))
	f.Add(bytes.Repeat([]byte{0x0d}, 64*entries), byte(32), byte(8))
	for _, last := range []byte{0x2c, 0x6c, 0xdc, 0x7c} {
		b := make([]byte, 64*entries)
		b[63], b[47] = last, 9
		f.Add(b, last&1, byte(0))
		b = bytes.Clone(b)
		b[47] = 8
		f.Add(b, byte(0), byte(0))
	}
	mems := map[int][2][]byte{64: {guarded(f, entries*64, true), guarded(f, 16*64, true)}, 128: {guarded(f, entries*128, true), guarded(f, 16*128, true)}}
	record, other := guarded(f, 8, true), guarded(f, 8, true)
	f.Fuzz(func(t *testing.T, raw []byte, choice, start byte) {
		v := variant{size: 64 + 64*int(choice>>1&1), version: int(choice >> 2 & 1), stamps: choice&8 != 0, scatters: choice&16 != 0}
		enhanced := choice&1 != 0
		if len(raw) < entries*v.size {
			return
		}
		raw = raw[:entries*v.size]
		plain := newScene(t, v, mems[v.size][1], other, 0)
		s := newScene(t, v, mems[v.size][0], record, 0)
		c := CQConfig{Buffer: mems[v.size][0], Record: record, EntrySize: v.size, Endpoints: &s.eps, State: &s.state, Timestamps: v.stamps,
			Scatter: s.q.decode.scatter, SignatureError: s.q.decode.signature}
		if v.version == 0 {
			c.Endpoints, c.Numbers = nil, &s.numbers
		}
		q, err := NewCompressedCQ(c, enhanced)
		if err != nil {
			t.Fatal(err)
		}
		q.next, q.given = uint32(start), uint32(start)
		mem := c.Buffer
		copy(mem, raw)
		if p := q.Produced(); p-uint32(start) > entries {
			t.Fatalf("produced %d from %d on", p, start)
		}

		// In pieces, for two laps and more if the entries say so.
		wants := expanded(bytes.Clone(raw), v.size, uint32(start), 5, enhanced)
		var got []cq.WC
		for batch := range 5 {
			wcs := make([]cq.WC, 1+batch%3)
			n, _ := q.Poll(wcs)
			got = append(got, wcs[:n]...)
			if q.Consumed()-uint32(start) >= 2*entries {
				break
			}
		}
		read := int(q.Consumed() - uint32(start))
		if read > len(wants) || len(got) < 5 && read < 2*entries && read != len(wants) {
			t.Fatalf("%d entries read of %d, %d completions", read, len(wants), len(got))
		}
		var want []cq.WC
		bad := uint64(0)
		for _, e := range wants[:read] {
			if e == nil {
				bad++
				continue
			}
			plain.device.addRaw(e)
			var wcs [1]cq.WC
			n, _ := plain.q.Poll(wcs[:])
			want = append(want, wcs[:n]...)
		}
		if len(got) != len(want) {
			t.Fatalf("%d completions, want %d", len(got), len(want))
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("completion %d:\n%+v, want\n%+v", i, got[i], want[i])
			}
		}
		a, b := s.outcome(), plain.outcome()
		b.stray += bad
		if a != b {
			t.Fatalf("%+v, want %+v", a, b)
		}
		// Whatever follows, it ends, and gives nothing out twice.
		if choice&32 != 0 {
			q.ReturnShared()
		}
		n, _ := q.Poll(make([]cq.WC, 3*entries))
		q.Empty()
		q.ReturnShared()
		if n > len(s.posted)-len(got) {
			t.Fatalf("%d completions more", n)
		}
	})
}
