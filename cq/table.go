package cq

// Table gives work requests ids without allocation: it keeps a value for each
// request under way and finds it again by the id that comes back in [WC.ID].
// An id of a value that was taken already, or of another value that had the
// same place, finds nothing: a request that ends twice is noticed.
//
// A Table belongs to one goroutine at a time. Where one goroutine posts and
// another polls, give each client a small number and each of its buffers another:
// client<<32 | buffer is an id without any table.
type Table[T any] struct {
	slots []tableSlot[T]
	free  []uint32
}

type tableSlot[T any] struct {
	value T
	// generation counts the uses of the slot, twice: odd while in use.
	generation uint32
}

// NewTable makes a table for up to n values at a time.
func NewTable[T any](n int) *Table[T] {
	t := &Table[T]{slots: make([]tableSlot[T], n), free: make([]uint32, n)}
	for i := range t.free {
		t.free[i] = uint32(n - 1 - i)
	}
	return t
}

// Put keeps v and returns the id of its request. ok is false when the table is
// full.
func (t *Table[T]) Put(v T) (id uint64, ok bool) {
	n := len(t.free)
	if n == 0 {
		return 0, false
	}
	i := t.free[n-1]
	t.free = t.free[:n-1]
	s := &t.slots[i]
	s.generation++
	s.value = v
	return uint64(s.generation)<<32 | uint64(i), true
}

// Take returns the value of an id and forgets it. ok is false when the id is of
// no value that is there.
func (t *Table[T]) Take(id uint64) (v T, ok bool) {
	s := t.find(id)
	if s == nil {
		return v, false
	}
	v = s.value
	var none T
	s.value = none
	s.generation++
	t.free = append(t.free, uint32(id))
	return v, true
}

// Get returns a pointer to the value of an id, valid until it is taken, or nil.
func (t *Table[T]) Get(id uint64) *T {
	if s := t.find(id); s != nil {
		return &s.value
	}
	return nil
}

func (t *Table[T]) find(id uint64) *tableSlot[T] {
	i := uint32(id)
	if uint64(i) >= uint64(len(t.slots)) {
		return nil
	}
	s := &t.slots[i]
	if s.generation != uint32(id>>32) || s.generation&1 == 0 {
		return nil
	}
	return s
}

// Len is how many values are in the table.
func (t *Table[T]) Len() int { return len(t.slots) - len(t.free) }
