package uverbs

import (
	"errors"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
)

// A queue with room for less than was asked for is not used: what completes on it
// would not fit.
func TestCQTooSmall(t *testing.T) {
	const says = "a ring for 7 completions where 100 were asked"
	small := func(b []byte) { native.PutUint32(b[4:], 7) } // the index mask of the ring
	for name, hostile := range map[string]func(r *rig){
		"by its ring": func(r *rig) { r.dev.file = &remapped{r.dev.file, small} },
		"by the answer": func(r *rig) {
			r.k.Tamper(func(c fakekernel.Call, attr uint16, out []byte) []byte {
				create := c.Method == fakekernel.Method{Object: abi.UVERBS_OBJECT_CQ, Method: abi.UVERBS_METHOD_CQ_CREATE} && attr == abi.UVERBS_ATTR_CREATE_CQ_RESP_CQE
				resize := c.Command == abi.IB_USER_VERBS_CMD_RESIZE_CQ && attr == abi.UVERBS_ATTR_CORE_OUT
				if create || resize {
					native.PutUint32(out, 7)
				}
				return out
			})
		},
	} {
		r := newRig(t, false)
		q, err := r.dev.NewCQ(50, nil)
		if err != nil {
			t.Fatal(err)
		}
		file := r.dev.file
		hostile(r)
		if _, err := r.dev.NewCQ(100, nil); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: make: %v", name, err)
		}
		if err := q.ResizeOwned(100); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: resize: %v", name, err)
		}
		r.k.Tamper(nil)
		r.dev.file = file
		if _, err := q.Poll(make([]WC, 1)); !errors.Is(err, ErrOverrun) {
			t.Errorf("%s: poll after the resize: %v", name, err)
		}
		if err := q.Close(); err != nil {
			t.Errorf("%s: close: %v", name, err)
		}
	}
}
