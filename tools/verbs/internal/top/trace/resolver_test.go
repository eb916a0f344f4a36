//go:build linux

package trace

import (
	"strings"
	"testing"
)

// The offsets of the kernels that the guests boot, as pahole prints them too.
func TestOffsets(t *testing.T) {
	common := cqOffsets{
		restrack: 152, id: 64, device: 0, driver: 16, entries: 40, vector: 148, uobject: 8,
		handle: 0, eventsRead: 144, errorsRead: 120, pending: 128, errorOf: 8, evQueue: 96,
	}
	ring := ringOffsets{ibcq: 0, queue: 304, notify: 316, buffer: 8, mask: 44, producer: 52}
	for kernel, moved := range map[string]struct{ index, fileData int32 }{
		"6.1":  {2584, 200},
		"6.12": {2632, 32},
	} {
		want := common
		want.index, want.fileData = moved.index, moved.fileData
		r := storedKernel(t, kernel)
		if got, err := r.cq(); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", kernel, got, err, want)
		}
		if got, err := r.ring(); err != nil || got != ring {
			t.Errorf("%s: %+v, %v; want %+v", kernel, got, err, ring)
		}
		// Without type information of the module, a table has the same.
		guess := ring
		guess.producer, guess.guessed = -1, true
		if got, err := storedKernel(t, kernel, "rdma_rxe").ring(); err != nil || got != guess {
			t.Errorf("%s without rdma_rxe: %+v, %v; want %+v", kernel, got, err, guess)
		}
		for _, g := range everyGroup() {
			for f, args := range g.functions {
				if err := r.takes(g.module, f, args); err != nil {
					t.Errorf("%s: %v", kernel, err)
				}
			}
		}
	}
}

// What a kernel lacks is said by name.
func TestWhatAKernelLacks(t *testing.T) {
	r := storedKernel(t, "6.12")
	offset := func(r *resolver, module, path string, bytes int) func() error {
		return func() error { _, err := r.offset(module, path, bytes); return err }
	}
	for name, tt := range map[string]struct {
		ask  func() error
		want string
	}{
		"no kernel":     {offset(storedKernel(t, "6.12", vmlinux), "ib_core", "ib_cq.res", 0), "the kernel has no type information (BTF)"},
		"no struct":     {offset(r, "ib_core", "ib_none.res", 0), "type information (BTF) of ib_core, vmlinux, ib_uverbs has no ib_none"},
		"no module":     {offset(storedKernel(t, "6.12", "rdma_rxe"), "rdma_rxe", "rxe_cq.queue", 8), "of rdma_rxe, vmlinux, ib_core, ib_uverbs has no rxe_cq"},
		"no member":     {offset(r, "ib_core", "ib_device.ops.nothing", 0), "ib_device.ops has no member nothing in this kernel"},
		"no struct in":  {offset(r, "ib_core", "ib_cq.cqe.more", 0), "ib_cq.cqe has no member more in this kernel"},
		"another size":  {offset(r, "ib_core", "ib_cq.cqe", 8), "ib_cq.cqe has 4 bytes in this kernel, not 8"},
		"a bit field":   {offset(r, "ib_core", "rdma_restrack_entry.no_track", 0), "rdma_restrack_entry.no_track is a bit field"},
		"few arguments": {func() error { return r.takes("ib_core", "fill_res_cq_entry", []string{"sk_buff"}) }, "fill_res_cq_entry has other arguments in this kernel: 4 "},
		"other type":    {func() error { return r.takes("ib_uverbs", "ib_uverbs_comp_handler", []string{"ib_qp", ""}) }, "ib_uverbs_comp_handler has other arguments in this kernel: 2 ib_cq"},
	} {
		if err := tt.ask(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, and not %q", name, err, tt.want)
		}
	}
	// A function without type information is believed.
	if err := r.takes("ib_core", "fill_res_nothing", []string{"sk_buff"}); err != nil {
		t.Error(err)
	}
}

// Members of anonymous structs and unions are found, at the sum of the offsets.
func TestAnonymousMembers(t *testing.T) {
	for _, kernel := range []string{"6.1", "6.12"} {
		r := storedKernel(t, kernel)
		// ib_cq has a union of a work and an irq_poll, ib_device.dev one in it.
		one, err1 := r.offset("ib_core", "ib_cq.iop", 0)
		other, err2 := r.offset("ib_core", "ib_cq.work", 0)
		if err1 != nil || err2 != nil || one != other || one == 0 {
			t.Errorf("%s: %d, %v; %d, %v", kernel, one, err1, other, err2)
		}
	}
}
