//go:build amd64 || arm64

package simproc

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/mlx5/model"
)

const pageSize = 4096

// registers are the UAR pages of an open device: memory that the program maps from the
// file that stands in for the device file, and this process from the same one. It is a
// model.Doorbells.
type registers struct {
	// ours is the file, by a description of our own.
	ours int

	mu    sync.Mutex // held while the model looks
	pages map[uint32][]page
	ended bool
}

// page is one place of the file at which a UAR page may be mapped: the same page of the device
// may have several.
type page struct {
	offset int64
	memory []byte
}

// Take implements [model.Doorbells]. Most of the time nothing is there, and a load leaves the
// line with the program's processor.
func (r *registers) Take(id uint32, offset int) uint64 {
	for _, p := range r.pages[id] {
		at := registerAt(p.memory, offset)
		if atomic.LoadUint64(at) == 0 {
			continue
		}
		var b [8]byte
		binary.NativeEndian.PutUint64(b[:], atomic.SwapUint64(at, 0))
		return binary.BigEndian.Uint64(b[:])
	}
	return 0
}

// mapPage maps a page of the file.
func (r *registers) mapPage(offset int64) ([]byte, error) {
	return unix.Mmap(r.ours, offset, pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// add has the model look at an offset of the file, if it is a page of registers.
func (r *registers) add(f *model.File, offset int64) error {
	m, err := f.Map(offset, pageSize, true)
	if err != nil || m.Kind != model.MapRegisters {
		return nil
	}
	b, err := r.mapPage(offset)
	if err != nil {
		return fmt.Errorf("simproc: mapping a page of registers: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pages[m.ID] = append(r.pages[m.ID], page{offset, b})
	return nil
}

// addStatic adds the pages that a context has from the start.
func (r *registers) addStatic(f *model.File) error {
	for _, command := range []abi.MLX5IBMmapCmd{abi.MLX5_IB_MMAP_REGULAR_PAGE, abi.MLX5_IB_MMAP_WC_PAGE, abi.MLX5_IB_MMAP_NC_PAGE} {
		for index := range int64(256) {
			offset := (int64(command)<<8 | index) * pageSize
			if _, err := f.Map(offset, pageSize, true); err != nil {
				break
			}
			if err := r.add(f, offset); err != nil {
				return err
			}
		}
	}
	return nil
}

// prune gives back the pages that the device has no more.
func (r *registers) prune(f *model.File) {
	r.mu.Lock()
	all := make(map[uint32]int64)
	for id, p := range r.pages {
		all[id] = p[0].offset
	}
	r.mu.Unlock()
	for id, offset := range all {
		if _, err := f.Map(offset, pageSize, true); err == nil {
			continue
		}
		r.mu.Lock()
		for _, p := range r.pages[id] {
			_ = unix.Munmap(p.memory) // it is a mapping, so it cannot fail
			// Whoever still has it mapped sees zeros. Failing costs a page.
			_ = unix.Fallocate(r.ours, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, p.offset, pageSize)
		}
		delete(r.pages, id)
		r.mu.Unlock()
	}
}

// end unmaps all pages. Nobody looks any more.
func (r *registers) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, pages := range r.pages {
		for _, p := range pages {
			_ = unix.Munmap(p.memory)
		}
	}
	r.pages, r.ended = nil, true
	unix.Close(r.ours)
}
