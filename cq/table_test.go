package cq

import (
	"math/rand/v2"
	"testing"
)

func TestTable(t *testing.T) {
	tab := NewTable[string](3)
	var ids []uint64
	for _, s := range []string{"a", "b", "c"} {
		id, ok := tab.Put(s)
		if !ok {
			t.Fatalf("no room for %q", s)
		}
		ids = append(ids, id)
	}
	if _, ok := tab.Put("d"); ok || tab.Len() != 3 {
		t.Error("a fourth value fits into a table of three")
	}
	if p := tab.Get(ids[1]); p == nil || *p != "b" {
		t.Errorf("Get: %v", p)
	}
	if v, ok := tab.Take(ids[1]); !ok || v != "b" {
		t.Errorf("Take: %q, %v", v, ok)
	}
	if v, ok := tab.Take(ids[1]); ok || v != "" {
		t.Errorf("second Take: %q, %v", v, ok)
	}
	again, _ := tab.Put("e")
	if again == ids[1] || tab.Get(ids[1]) != nil {
		t.Error("the id of another value finds the new one")
	}
	for _, id := range []uint64{0, 1, ^uint64(0), 3, ids[0] + 1<<32, ids[0] - 1<<32} {
		if tab.Get(id) != nil {
			t.Errorf("id %#x finds something", id)
		}
	}
}

func TestTableAgainstMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	tab, model := NewTable[int](16), map[uint64]int{}
	var old []uint64
	for i := range 100000 {
		if rng.IntN(2) == 0 {
			id, ok := tab.Put(i)
			if ok != (len(model) < 16) {
				t.Fatalf("Put: %v with %d values", ok, len(model))
			}
			if ok {
				model[id] = i
			}
			continue
		}
		for id, want := range model {
			if v, ok := tab.Take(id); !ok || v != want {
				t.Fatalf("Take: %d, %v, want %d", v, ok, want)
			}
			delete(model, id)
			if len(old) < 1000 {
				old = append(old, id)
			}
			break
		}
		if len(old) > 0 {
			if _, ok := tab.Take(old[rng.IntN(len(old))]); ok {
				t.Fatal("an id that was taken is found again")
			}
		}
		if tab.Len() != len(model) {
			t.Fatalf("Len %d, want %d", tab.Len(), len(model))
		}
	}
}

func TestTableAllocatesNothing(t *testing.T) {
	tab := NewTable[[4]uint64](8)
	if n := testing.AllocsPerRun(100, func() {
		id, _ := tab.Put([4]uint64{1})
		tab.Take(id)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
