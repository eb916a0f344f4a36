package cq

import "testing"

// A request of the library's own tells how far the queue has got, and is never
// heard of, whatever becomes of it.
func TestSilentRequests(t *testing.T) {
	for name, end := range map[string]func(r *Requests, silent uint32, wcs []WC) int{
		"success": func(r *Requests, silent uint32, wcs []WC) int {
			if show, ok := r.Complete(silent, StatusSuccess, &wcs[0]); show || !ok {
				t.Errorf("success: shown %v, known %v", show, ok)
			}
			return 0
		},
		"failure after the others": func(r *Requests, silent uint32, wcs []WC) int {
			if show, ok := r.Complete(silent-1, StatusFlushed, &wcs[0]); !show || !ok {
				t.Errorf("failure of the one before: shown %v, known %v", show, ok)
			}
			if show, ok := r.Complete(silent, StatusFlushed, &wcs[1]); show || !ok {
				t.Errorf("failure: shown %v, known %v", show, ok)
			}
			return 1
		},
		"never reported": func(r *Requests, silent uint32, wcs []WC) int {
			n, done := r.Abandon(wcs, r.Tail(), false)
			if !done {
				t.Error("abandoned, but not done")
			}
			return n
		},
		"behind one that is reported": func(r *Requests, silent uint32, wcs []WC) int {
			seq, _ := r.Stage(9, OpSend, 0, false)
			r.Commit()
			if show, ok := r.Complete(seq, StatusSuccess, &wcs[0]); !show || !ok || wcs[0].ID != 9 {
				t.Errorf("the one behind: shown %v, known %v, %+v", show, ok, wcs[0])
			}
			return 0
		},
	} {
		var state State
		r := NewRequests(8, SendSide, 1, &state)
		r.Stage(1, OpSend, 10, true)
		r.Stage(2, OpSend, 10, true)
		silent := r.StageSilent()
		r.Commit()
		var wcs [8]WC
		n := end(r, silent, wcs[:])
		if want := map[string]int{"never reported": 2, "failure after the others": 1}[name]; n != want {
			t.Errorf("%s: %d of the program's requests were heard of, want %d", name, n, want)
		}
		if !r.Idle() {
			t.Errorf("%s: not idle, %d vacant", name, r.Vacant())
		}
	}
}
