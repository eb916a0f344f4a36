package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
	"github.com/goverbs/goverbs/mlx5/model"
)

// kinds of records.
type recordKind uint8

const (
	recordIoctl    recordKind = iota
	recordWQE                 // a request as the device reads it
	recordReceive             // a receive as the device reads it
	recordCQE                 // a completion as the device writes it
	recordDoorbell            // a store to a register
	recordRecord              // a doorbell record that changed during a step
	recordEvent               // a record for the program's event files
	recordOutput              // what the program says that it sees
)

var recordNames = [...]string{"ioctl", "WQE", "receive", "CQE", "doorbell", "doorbell record", "event", "output"}

// record is a thing that one side did.
type record struct {
	step  int
	kind  recordKind
	of    string  // which queue or request it is of
	bytes []byte  // what is compared, normalised, or
	parts []field // its fields
	event model.Event
}

// A queue is memory of a queue that the device knows.
type queueMemory struct {
	from, to uint64
	kind     string // "SQ", "RQ", "SRQ" or "CQ"
	number   int
	stride   uint64
}

// A doorbell record in memory.
type recordMemory struct {
	addr   uint64
	kind   string
	number int
	words  []string
	last   []byte
}

// recorder notes what a program does on the model. It is the memory that the device reads.
type recorder struct {
	model.Memory
	records []record
	step    int
	synced  bool // the first request by which steps are told was there

	pending     *rawRequest
	objects     map[string]map[uint32]int // by kind and handle, descriptor or number
	counts      map[string]int
	indices     map[uint32]uint32 // QPs by user index
	queues      []queueMemory
	bells       []*recordMemory
	numbers     map[string]map[uint32]int // of QPs and CQs, by the device's number
	transports  map[int]string            // of QPs
	sharing     map[uint32]bool           // QPs with an SRQ
	shared      map[uint16]uint16         // reads of an SRQ by element
	sharedReads uint16
	errs        []string
	more        int // bytes of the last WQE that are still to be read
	stamp       uint64
}

func newRecorder() *recorder {
	return &recorder{objects: map[string]map[uint32]int{}, counts: map[string]int{}, indices: map[uint32]uint32{}, numbers: map[string]map[uint32]int{}, transports: map[int]string{}, sharing: map[uint32]bool{}, shared: map[uint16]uint16{}}
}

// markerQP is the queue pair that programs ask for after each step.
const markerQP = "QP 0 (RC)"

// attach has the recorder listen to a model. One program opens one device, once.
func (r *recorder) attach(m *model.Model) {
	m.Tap(model.Tap{
		Memory: func(_ string, mem model.Memory) model.Memory {
			r.Memory = mem
			return r
		},
		Request:  r.request,
		Doorbell: r.doorbell,
	})
	m.Trace(r.trace)
}

func (r *recorder) note(kind recordKind, of string, b []byte) *record {
	r.records = append(r.records, record{step: r.step, kind: kind, of: of, bytes: b})
	return &r.records[len(r.records)-1]
}

// nameOf names an object by its handle.
func (r *recorder) nameOf(kind string, handle uint32) string {
	n, ok := r.objects[kind][handle]
	switch {
	case !ok:
		return fmt.Sprintf("no %s (%d)", kind, handle)
	case kind == "QP":
		return fmt.Sprintf("QP %d (%s)", n, r.transports[n])
	}
	return fmt.Sprintf("%s %d", kind, n)
}

func (r *recorder) fileName(fd uint32) string {
	for _, kind := range []string{"channel", "async"} {
		if n, ok := r.objects[kind][fd]; ok {
			return fmt.Sprintf("%s %d", kind, n)
		}
	}
	return fmt.Sprintf("no file of events (%d)", fd)
}

// pageName says of which type a page of registers is.
func (r *recorder) pageName(id uint32) string {
	if n, ok := r.numbers["UAR"][id]; ok {
		return map[int]string{0: "a combining page", 1: "the uncached page"}[n]
	}
	return fmt.Sprintf("no page (%#x)", id)
}

// newIndex enters the user index of a queue that is being made.
func (r *recorder) newIndex(index uint32) string {
	if of, ok := r.indices[index]; ok {
		return fmt.Sprintf("that of QP %d", of)
	}
	return "one of its own"
}

// request is told of an ioctl before it runs. All that was posted before is done.
func (r *recorder) request(_ string, mem request.Memory, addr uint64) {
	r.pending = readRequest(mem, addr)
	if r.pending.title == queryQP && r.nameOf("QP", r.pending.uint32(abi.UVERBS_ATTR_CORE_IN, 8)) == markerQP {
		r.lookAtRecords()
	}
}

// lookAtRecords notes doorbell records that changed during the step.
func (r *recorder) lookAtRecords() {
	for _, m := range r.bells {
		b := make([]byte, len(m.last))
		if r.Memory.Read(m.addr, b) != nil {
			r.errs = append(r.errs, fmt.Sprintf("step %d: the doorbell record of %s %d at %#x is gone", r.step, m.kind, m.number, m.addr))
			continue
		}
		if bytes.Equal(b, m.last) {
			continue
		}
		rec := r.note(recordRecord, fmt.Sprintf("%s %d", m.kind, m.number), nil)
		for i, w := range m.words {
			rec.parts = append(rec.parts, field{w, fmt.Sprintf("%x", b[i*4:i*4+4])})
		}
		m.last = b
	}
}

// trace is told what the model does.
func (r *recorder) trace(e model.Event) {
	switch e := e.(type) {
	case model.IoctlEvent:
		r.answered(&e)
	case model.RequestEvent:
		r.explain(recordWQE, e)
	case model.CompletionEvent:
		r.explain(recordCQE, e)
	case model.DeliveryEvent:
		r.note(recordEvent, fmt.Sprintf("%s of %s", r.fileName(uint32(e.FD)), r.numbered(e.Kind, e.Number)), fmt.Appendf(nil, "type %d", e.Type))
	}
}

// explain keeps what the model says of the record before.
func (r *recorder) explain(kind recordKind, e model.Event) {
	for i := len(r.records) - 1; i >= 0 && i > len(r.records)-8; i-- {
		if p := &r.records[i]; p.kind == kind && p.event == nil {
			p.event = e
			return
		}
	}
}

// numbered names an object by the number that the device gave it.
func (r *recorder) numbered(kind string, number uint32) string {
	if n, ok := r.numbers[kind][number]; ok {
		return fmt.Sprintf("%s %d", kind, n)
	}
	return fmt.Sprintf("%s of number %#x", kind, number)
}

// answered is told of an ioctl that was carried out.
func (r *recorder) answered(e *model.IoctlEvent) {
	q := r.pending
	r.pending = nil
	if q == nil {
		return
	}
	if q.title == queryQP && r.nameOf("QP", q.uint32(abi.UVERBS_ATTR_CORE_IN, 8)) == markerQP {
		if r.synced {
			r.step++
			return
		}
		r.synced = true
		defer func() { r.step++ }()
	}
	rec := r.note(recordIoctl, q.title, nil)
	rec.parts = append(q.fields(r), field{"answer", e.Errno.String()})
	rec.event = *e
	if e.Errno != 0 {
		return
	}
	for _, o := range e.Objects {
		if o.Made {
			r.enter(q, o)
		}
	}
	r.follow(q, e)
}

// enter counts a new object.
func (r *recorder) enter(q *rawRequest, o model.ObjectRef) {
	n := r.counts[o.Kind]
	r.counts[o.Kind]++
	put(r.objects, o.Kind, o.Handle, n)
	switch o.Kind {
	case "QP", "CQ", "SRQ":
		put(r.numbers, o.Kind, o.Number, n)
	}
}

func put(m map[string]map[uint32]int, kind string, key uint32, n int) {
	if m[kind] == nil {
		m[kind] = make(map[uint32]int)
	}
	m[kind][key] = n
}

// follow learns where queues are from requests that made them.
func (r *recorder) follow(q *rawRequest, e *model.IoctlEvent) {
	const uhw = abi.UVERBS_ATTR_UHW_IN
	buf, db := q.uint64(uhw, 0), q.uint64(uhw, 8)
	switch q.title {
	case createCQ:
		n := r.counts["CQ"] - 1
		entries, size := q.uint32(abi.UVERBS_ATTR_CREATE_CQ_CQE, 0)+1, q.uint32(uhw, 16)
		r.addQueue(buf, uint64(entries)*uint64(size), "CQ", n, uint64(size))
		r.addRecord(db, "CQ", n, "SET_CI", "ARM")
	case createQP:
		n := r.counts["QP"] - 1
		sends, receives, shift := uint64(q.uint32(uhw, 16)), uint64(q.uint32(uhw, 20)), q.uint32(uhw, 24)
		r.addQueue(buf, receives<<shift, "RQ", n, 1<<shift)
		r.addQueue(buf+receives<<shift, sends*64, "SQ", n, 64)
		r.addRecord(db, "QP", n, "RCV", "SND")
		r.indices[q.uint32(uhw, 32)] = uint32(n)
		for i := range q.attrs {
			if q.attrs[i].id == abi.UVERBS_ATTR_CREATE_QP_SRQ_HANDLE {
				r.sharing[uint32(n)] = true
			}
		}
		r.transports[n] = map[uint32]string{transportRC: "RC", transportUC: "UC", transportUD: "UD"}[q.uint32(abi.UVERBS_ATTR_CREATE_QP_TYPE, 0)]
	case createSRQ:
		n := r.counts["SRQ"] - 1
		max, sge := uint64(q.uint32(abi.UVERBS_ATTR_CREATE_SRQ_MAX_WR, 0)), uint64(q.uint32(abi.UVERBS_ATTR_CREATE_SRQ_MAX_SGE, 0))
		stride := uint64(32)
		for stride < 16*(sge+1) {
			stride *= 2
		}
		r.addQueue(buf, (max+1)*stride, "SRQ", n, stride)
		r.addRecord(db, "SRQ", n, "COUNT")
	case resizeCQ:
		n := r.objects["CQ"][q.uint32(abi.UVERBS_ATTR_CORE_IN, 8)]
		size := uint64(q.uint32(uhw, 8) & 0xffff)
		r.forget("CQ", n, false)
		r.addQueue(buf, uint64(q.uint32(abi.UVERBS_ATTR_CORE_IN, 12)+1)*size, "CQ", n, size)
	case allocUAR:
		if typ := q.input(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE); len(typ) > 0 {
			r.learnPage(q, int(typ[0]))
		}
	case "QP.QP_DESTROY", "CQ.CQ_DESTROY", "SRQ.SRQ_DESTROY":
		for _, o := range e.Objects {
			n := r.objects[o.Kind][o.Handle]
			r.forget(o.Kind, n, true)
			delete(r.objects[o.Kind], o.Handle)
			delete(r.numbers[o.Kind], o.Number)
			for index, of := range r.indices {
				if o.Kind == "QP" && of == uint32(n) {
					delete(r.indices, index)
				}
			}
		}
	}
}

// learnPage reads the number of a new page of registers from the answer.
func (r *recorder) learnPage(q *rawRequest, typ int) {
	for i := range q.attrs {
		if q.attrs[i].id != abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID {
			continue
		}
		var b [4]byte
		if r.Memory.Read(q.attrs[i].data, b[:]) == nil {
			put(r.numbers, "UAR", binary.NativeEndian.Uint32(b[:]), typ)
		}
	}
}

// addQueue enters memory of a queue, where no other is.
func (r *recorder) addQueue(at, n uint64, kind string, number int, stride uint64) {
	if n == 0 {
		return
	}
	for _, q := range r.queues {
		if at < q.to && q.from < at+n {
			r.errs = append(r.errs, fmt.Sprintf("step %d: %s %d lies in the memory of %s %d", r.step, kind, number, q.kind, q.number))
		}
	}
	r.queues = append(r.queues, queueMemory{at, at + n, kind, number, stride})
}

func (r *recorder) addRecord(addr uint64, kind string, number int, words ...string) {
	m := &recordMemory{addr: addr, kind: kind, number: number, words: words, last: make([]byte, 4*len(words))}
	for _, o := range r.bells {
		if addr < o.addr+8 && o.addr < addr+8 {
			r.errs = append(r.errs, fmt.Sprintf("step %d: %s %d has the doorbell record of %s %d", r.step, kind, number, o.kind, o.number))
		}
	}
	r.bells = append(r.bells, m)
}

// forget forgets the memory of a queue, and its doorbell record.
func (r *recorder) forget(kind string, number int, whole bool) {
	queues, bells := r.queues[:0], r.bells[:0]
	for _, q := range r.queues {
		if q.number != number || q.kind != kind && (kind != "QP" || q.kind != "SQ" && q.kind != "RQ") {
			queues = append(queues, q)
		}
	}
	for _, m := range r.bells {
		if !whole || m.kind != kind || m.number != number {
			bells = append(bells, m)
		}
	}
	r.queues, r.bells = queues, bells
}

// queueAt finds the queue that has an address.
func (r *recorder) queueAt(addr uint64) *queueMemory {
	for i := range r.queues {
		if q := &r.queues[i]; addr >= q.from && addr < q.to {
			return q
		}
	}
	return nil
}

// Read implements [model.Memory].
func (r *recorder) Read(addr uint64, p []byte) error {
	err := r.Memory.Read(addr, p)
	if err != nil {
		return err
	}
	q := r.queueAt(addr)
	if q == nil {
		return nil
	}
	slot := (addr - q.from) / q.stride
	of := func() string { return fmt.Sprintf("%s %d (%s) at %d", q.kind, q.number, r.transports[q.number], slot) }
	switch q.kind {
	case "SQ":
		if r.more > 0 { // the request before goes on here
			last := &r.records[len(r.records)-1]
			n := min(r.more, len(p))
			last.bytes = append(last.bytes, p[:n]...)
			r.more -= n
			return nil
		}
		n := int(binary.BigEndian.Uint32(p[4:])&0x3f) * 16
		r.note(recordWQE, of(), bytes.Clone(p[:min(n, len(p))]))
		r.more = max(0, n-len(p))
	case "RQ":
		r.note(recordReceive, of(), list(p, 0))
	case "SRQ":
		// Its elements are linked in an order of the program's: the order in which the device reads
		// them takes the place of their numbers.
		b := list(p, 16)
		if len(b) >= 4 {
			b[2], b[3] = 0, 0
		}
		r.sharedReads++
		r.shared[uint16(slot)] = r.sharedReads
		r.note(recordReceive, fmt.Sprintf("SRQ %d", q.number), b)
	}
	return nil
}

// list is a receive without what is behind its end.
func list(p []byte, begin int) []byte {
	end := begin
	for ; end+16 <= len(p); end += 16 {
		if binary.BigEndian.Uint32(p[end:]) == 0 && binary.BigEndian.Uint32(p[end+4:]) == terminator {
			end += 16
			break
		}
	}
	return bytes.Clone(p[:end])
}

const terminator = 0x100 // the key of a data pointer that ends a list

// Publish implements [model.Memory].
func (r *recorder) Publish(addr uint64, p []byte) error {
	if q := r.queueAt(addr); q != nil {
		b := bytes.Clone(p)
		r.normalise(b[len(b)-64:])
		r.note(recordCQE, fmt.Sprintf("%s %d at %d", q.kind, q.number, (addr-q.from)/q.stride), b)
	}
	return r.Memory.Publish(addr, p)
}

// normalise puts the order of the queue in place of its user index, and whether time went on in
// place of the time.
func (r *recorder) normalise(cqe []byte) {
	be := binary.BigEndian
	if of, ok := r.numbers["QP"][be.Uint32(cqe[56:])&0xffffff]; ok && r.sharing[uint32(of)] {
		switch cqe[63] >> 4 {
		case 1, 2, 3, 4, 14: // of receives
			be.PutUint16(cqe[60:], r.shared[be.Uint16(cqe[60:])])
		}
	}
	if of, ok := r.indices[be.Uint32(cqe[32:])]; ok {
		be.PutUint32(cqe[32:], of)
	}
	if stamp := be.Uint64(cqe[48:]); cqe[63]>>4 < 13 && stamp != 0 {
		v := uint64(1)
		if stamp < r.stamp {
			v = 2
		}
		r.stamp = stamp
		be.PutUint64(cqe[48:], v)
	}
}

// doorbell is told of a store to a register.
func (r *recorder) doorbell(_ string, page uint32, offset int, value uint64) {
	of, rest := r.numbered("CQ", uint32(value)), fmt.Sprintf("%08x", value>>32)
	if offset != 0x20 {
		of, rest = r.numbered("QP", uint32(value)>>8&0xffffff), fmt.Sprintf("%016x", value)
	}
	rec := r.note(recordDoorbell, of, nil)
	rec.parts = []field{{"value", rest}, {"register", fmt.Sprintf("%#x of %s", offset, r.pageName(page))}}
}

// output makes records of the lines of a program: a step, a queue, and behind a colon names and values.
func output(text []byte) []record {
	var all []record
	for line := range strings.Lines(string(text)) {
		step, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		of, values, _ := strings.Cut(rest, ": ")
		r := record{kind: recordOutput, of: of}
		_, _ = fmt.Sscan(step, &r.step)
		words := strings.Fields(values)
		for i := 0; i < len(words); i += 2 {
			f := field{name: words[i]}
			if i+1 < len(words) {
				f.value = words[i+1]
			}
			r.parts = append(r.parts, f)
		}
		all = append(all, r)
	}
	return all
}
