package decode

import (
	"bytes"
	"encoding/binary"

	"github.com/goverbs/goverbs/mlx5"
	"github.com/goverbs/goverbs/tools/internal/plural"
)

const (
	// reach is how many lines apart two parts of one story may stand:
	// other CPUs and processes print in between.
	reach = 64
	// maxOpen bounds how many dumps may be under way at once.
	maxOpen = 64
)

// dump is a hexadecimal dump that is being put together from rows.
type dump struct {
	key         string
	first, last int    // lines
	base        int64  // offset of the first byte, -1 for rows without offsets
	size        int64  // bytes that rows brought
	data        []byte // the last of them: what may still be part of a CQE
	want        int64  // bytes, for the dump of a work request
	width       int
	work        bool // the dump of a work request: swallowed
	announced   bool // a line before it said that an error CQE comes
	mixed       bool // two were announced before its first row
	slid        bool // its beginning was found to be none of a CQE
	star        bool // a line "*" stands for repeated rows
	surplus     bool // rows had more bytes than their offsets allow
	zeros, rows int  // rows of zeros, all rows
	finding     *Finding
}

// header is a line that says what the next dump is.
type header struct {
	line int
	key  string
	work bool
	want int64
}

// assembler puts rows together to dumps. Rows of several dumps may come mixed.
type assembler struct {
	open    []*dump
	headers []header
	wrapped *dump // the dump whose last row may go on in the next line
	// found is called with what a complete dump says.
	found func(*Finding)
	note  func(Note)
}

// announce is told of a line that says that a dump comes.
func (a *assembler) announce(h header) {
	if len(a.headers) == maxOpen {
		a.headers = append(a.headers[:0], a.headers[1:]...)
	}
	a.headers = append(a.headers, h)
}

// expire forgets what has waited too long.
func (a *assembler) expire(line int) {
	keep := a.open[:0]
	for _, d := range a.open {
		if line-d.last <= reach {
			keep = append(keep, d)
		} else {
			a.abandon(d)
		}
	}
	a.open = keep
	h := a.headers[:0]
	for _, x := range a.headers {
		if line-x.line <= reach {
			h = append(h, x)
		}
	}
	a.headers = h
}

// end is the end of the text.
func (a *assembler) end() {
	for _, d := range a.open {
		a.abandon(d)
	}
	a.open, a.headers, a.wrapped = nil, nil, nil
}

// abandon tells of a dump that never became whole.
func (a *assembler) abandon(d *dump) {
	if !d.work && d.announced && d.size < 64 {
		a.note(Note{Line: d.first, Text: "half a dump: " + plural.Of(int(d.size), "byte") +
			" of 64; what matters stands in the last 16"})
	}
}

func (a *assembler) remove(d *dump) {
	for i, x := range a.open {
		if x == d {
			a.open = append(a.open[:i], a.open[i+1:]...)
			return
		}
	}
}

func (a *assembler) add(d *dump) *dump {
	if len(a.open) == maxOpen {
		a.abandon(a.open[0])
		a.open = append(a.open[:0], a.open[1:]...)
	}
	a.open = append(a.open, d)
	return d
}

// sameKey says that two lines may come from the same printer.
func sameKey(a, b string) bool { return a == "" || b == "" || a == b }

// row takes one row of a line.
func (a *assembler) row(line int, key string, r row) {
	if d := a.wrapped; d != nil {
		a.wrapped = nil
		if r.alone && r.width == d.width && line <= d.last+1 && len(r.data) <= 16-int(d.size%16) {
			a.append(d, line, r)
			return
		}
	}
	var d *dump
	if r.off < 0 {
		d = a.unnumbered(line, key, r)
	} else {
		d = a.numbered(line, key, r)
	}
	if d != nil {
		a.append(d, line, r)
	}
}

// numbered finds, or opens, the dump that a row with an offset belongs to.
func (a *assembler) numbered(line int, key string, r row) *dump {
	zero := allZero(r.data)
	var best *dump
	for i := len(a.open) - 1; i >= 0; i-- {
		d := a.open[i]
		if d.base < 0 || !sameKey(d.key, key) || d.width != r.width {
			continue
		}
		at := r.off - d.base
		if d.star && at > d.size && at < 128 && len(d.data) >= 16 {
			d.repeat(at)
		}
		if at != d.size || at == 0 {
			continue
		}
		if at == 0x30 && !d.work && len(r.data) == 16 && r.data[15]>>4 < 0xc && a.working(key) {
			// The last row of no error CQE, and there is a work request
			// that it can be of, even if another row of it was lost.
			continue
		}
		if best == nil || better(d, best, r, zero, key) {
			best = d
		}
	}
	if best != nil {
		return best
	}
	switch {
	case r.off == 0:
		h, sure, ok := a.take(key, zero)
		d := &dump{key: key, first: line, width: r.width}
		if ok {
			d.work, d.want, d.announced = h.work, h.want, !h.work
			if sure {
				d.first = h.line
			}
		}
		return a.add(d)
	case r.off == 0x30 && r.width == 1 && len(r.data) == 16:
		a.tail(line, key, r)
	case r.off >= 64 && r.off%8 == 0:
		return a.add(&dump{key: key, first: line, base: r.off, width: r.width})
	}
	return nil
}

// working says that the dump of a work request is under way.
func (a *assembler) working(key string) bool {
	for _, d := range a.open {
		if d.work && sameKey(d.key, key) {
			return true
		}
	}
	return false
}

// better says whether a row goes to d rather than to the dump best, which was
// touched later. Work requests are full of bytes, error CQEs of zeros, and the
// last row of an error CQE is easy to know.
func better(d, best *dump, r row, zero bool, key string) bool {
	if (d.key == key) != (best.key == key) {
		return d.key == key
	}
	if d.work != best.work {
		wantWork := !zero
		switch at := r.off - d.base; {
		case at == 0x30:
			wantWork = !errorTail(r.data)
		case at >= 64:
			wantWork = true
		}
		return d.work == wantWork
	}
	return d.last > best.last
}

// take finds the header whose dump begins with a row, oldest first. sure says
// that there was no other to choose from.
func (a *assembler) take(key string, zero bool) (h header, sure, ok bool) {
	pick, choice := -1, 0
	for i, x := range a.headers {
		if !sameKey(x.key, key) {
			continue
		}
		choice++
		if pick < 0 || x.work == !zero && a.headers[pick].work == zero {
			pick = i
		}
	}
	if pick < 0 {
		return header{}, false, false
	}
	h = a.headers[pick]
	a.headers = append(a.headers[:pick], a.headers[pick+1:]...)
	return h, choice == 1, true
}

// unnumbered finds, or opens, the dump that a row without an offset belongs to.
func (a *assembler) unnumbered(line int, key string, r row) *dump {
	const gap = 8 // lines of others between two rows
	var d *dump
	for i := len(a.open) - 1; i >= 0 && d == nil; i-- {
		if x := a.open[i]; x.base < 0 && x.key == key && x.width == r.width {
			d = x
		}
	}
	if r.width == 1 && len(r.data) < 8 {
		return nil
	}
	announced, first := a.announced(key, line-gap, d)
	switch {
	case d == nil:
	case announced > 0 || line-d.last > gap || d.size%16 != 0:
		a.abandon(d)
		a.remove(d)
	default:
		return d
	}
	if announced == 0 && (len(r.data)%16 != 0 && len(r.data) != 8) {
		return nil
	}
	if announced != 1 {
		first = line
	}
	return a.add(&dump{key: key, first: first, base: -1, width: r.width, announced: announced > 0, mixed: announced > 1})
}

// announced takes the headers that stand between the last row of a dump, if
// there is one, and a new row without offset, counts them and returns the line
// of the last.
func (a *assembler) announced(key string, after int, d *dump) (n, line int) {
	if d != nil {
		after = max(after, d.last-1)
	}
	keep := a.headers[:0]
	for _, h := range a.headers {
		if !h.work && sameKey(h.key, key) && h.line > after && (d == nil || h.line >= d.last) {
			n++
			line = h.line
		} else {
			keep = append(keep, h)
		}
	}
	a.headers = keep
	return n, line
}

// repeat fills a dump up to an offset with its last row.
func (d *dump) repeat(to int64) {
	for d.size < to {
		d.data = append(d.data, d.data[len(d.data)-16:]...)
		d.size += 16
	}
}

// append adds the bytes of a row and looks whether the dump is whole.
func (a *assembler) append(d *dump, line int, r row) {
	d.last = line
	d.star = false
	d.surplus = d.surplus || r.surplus
	d.size += int64(len(r.data))
	d.rows++
	if allZero(r.data) {
		d.zeros++
	}
	if d.size%16 != 0 && r.last {
		a.wrapped = d
	}
	if d.work {
		if d.size >= d.want {
			a.remove(d)
		}
		return
	}
	// A whole dump that goes on is longer than one CQE: then it was none,
	// and what was found in it is taken back.
	if f := d.finding; f != nil {
		f.retract()
		d.finding = nil
	}
	if d.base >= 0 && d.size > 128 {
		d.data = nil // a dump of something else; its rows are swallowed
		return
	}
	d.data = append(d.data, r.data...)
	switch {
	case d.base < 0:
		a.slide(d)
	case d.size == 64 || d.size == 128:
		a.whole(d)
	}
}

// whole looks for an error CQE in a complete dump with offsets.
func (a *assembler) whole(d *dump) {
	b := (*[64]byte)(d.data[len(d.data)-64:])
	f := a.read(d, b)
	switch {
	case f != nil:
		d.finding = f
		a.found(f)
	case d.announced:
		a.refuse(d, b)
	}
	if d.announced {
		d.finding = nil
		a.remove(d)
	}
}

// slide looks for error CQEs in rows without offsets, where nothing but the
// bytes tells where one begins.
func (a *assembler) slide(d *dump) {
	for len(d.data) >= 64 {
		b := (*[64]byte)(d.data)
		f := a.read(d, b)
		if f != nil && (!d.slid && !d.mixed || allZero(b[:32])) {
			a.found(f)
			d.data = append(d.data[:0], d.data[64:]...)
			if len(d.data) == 0 {
				a.remove(d)
			}
			d.announced, d.slid, d.first = false, false, d.last
			continue
		}
		if f == nil && d.announced && !d.mixed {
			a.refuse(d, b)
			a.remove(d)
			return
		}
		if f != nil && d.zeros*2 >= d.rows {
			a.tail(d.last, d.key, row{data: b[48:]})
		}
		d.data = append(d.data[:0], d.data[16:]...)
		d.slid = true
	}
}

// read makes a finding of 64 bytes, or nil if they are no error CQE. Without a
// line that announced it, the bytes must look the part.
func (a *assembler) read(d *dump, b *[64]byte) *Finding {
	f := &Finding{Line: d.first, LastLine: d.last, key: d.key, dump: d}
	try := *b
	for swapped := range 2 {
		if swapped == 1 {
			if d.width != 4 && d.width != 2 {
				return nil
			}
			swap(&try, d.width)
		}
		if !d.announced && !errorTail(try[48:]) {
			continue
		}
		if err := f.fromCQE(&try); err != nil {
			s, err := mlx5.ParseSignatureErrorCQE(&try)
			if err != nil || !d.announced {
				continue
			}
			f.Signature = &s
			f.QPN = some(s.QPN)
			f.CQE = some(try)
		}
		if swapped == 1 {
			f.Notes = append(f.Notes, "the dump shows words in the byte order of a little-endian machine; they were turned around")
		}
		if d.surplus {
			f.Notes = append(f.Notes, "rows of the dump have more bytes than their offsets allow; the surplus was left out")
		}
		return f
	}
	return nil
}

// refuse tells of a dump that was announced as an error CQE and is none of mlx5.
func (a *assembler) refuse(d *dump, b *[64]byte) {
	_, err := mlx5.ParseErrorCQE(b)
	a.note(Note{Line: d.first, Text: "a dump is announced as a completion error, but it is refused: " + err.Error(), Refused: true})
}

// tail makes a finding of a last row that stands alone.
func (a *assembler) tail(line int, key string, r row) {
	if !errorTail(r.data) {
		return
	}
	var b [64]byte
	copy(b[48:], r.data)
	e, err := mlx5.ParseErrorCQE(&b)
	if err != nil {
		return
	}
	f := &Finding{Line: line, LastLine: line, key: key,
		Notes: []string{"only the last 16 bytes of the dump are there, or only they are certain: no user index, no check of the signature"}}
	f.fromError(e)
	a.found(f)
}

// wrapStops is told of a line that is no row: a row before it does not go on.
func (a *assembler) wrapStops(line int) {
	if a.wrapped != nil && line > a.wrapped.last {
		a.wrapped = nil
	}
}

// maybeStar says whether a line may be the "*" that hexdump and od print in
// place of repeated rows.
func (a *assembler) maybeStar(line []byte) bool {
	const most = 8 // bytes, with quote marks
	return len(a.open) > 0 && len(line) <= most && bytes.IndexByte(line, '*') >= 0
}

// repeated is told of that line.
func (a *assembler) repeated(line int) {
	for _, d := range a.open {
		if d.base >= 0 && line-d.last == 1 {
			d.star = true
		}
	}
}

// errorTail says whether 16 bytes look like the last ones of an error CQE:
// opcode, format and syndrome are those of one.
func errorTail(b []byte) bool {
	if len(b) != 16 {
		return false
	}
	op := b[15] >> 4
	return (op == 0xd || op == 0xe) && b[15]&0xc == 0 && mlx5.Syndrome(b[7]).Known()
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// swap turns the bytes of each word around.
func swap(b *[64]byte, width int) {
	for i := 0; i < len(b); i += width {
		if width == 2 {
			binary.LittleEndian.PutUint16(b[i:], binary.BigEndian.Uint16(b[i:]))
		} else {
			binary.LittleEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
		}
	}
}
