package sim

import (
	"fmt"
	"io/fs"
	"math"
	"syscall"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// system is a machine that has the devices of a model and nothing else. Memory is
// this machine's: the model reads that of its own process.
type system struct {
	kernel.Kernel // the host's, for memory

	model      *model.Model
	privileged bool
	sysfs      tree
}

func newSystem(m *model.Model, privileged bool) *system {
	s := &system{Kernel: kernel.Host(), model: m, privileged: privileged}
	s.sysfs = tree{sysfs(m)}
	return s
}

// The numbers of uverbs files: IB_UVERBS_MAJOR and IB_UVERBS_BASE_MINOR of
// drivers/infiniband/core/uverbs_main.c.
const (
	verbsMajor = 231
	verbsMinor = 192
)

// verbsName is the name of the file of the n-th device.
func verbsName(n int) string { return fmt.Sprintf("uverbs%d", n) }

// verbsNumber is its device number, in the encoding of st_rdev.
func verbsNumber(n int) uint64 {
	minor := uint64(verbsMinor + n)
	return verbsMajor<<8 | minor&0xff | minor&^0xff<<12
}

// Open implements [kernel.Kernel].
func (s *system) Open(path string, rdev uint64) (kernel.File, error) {
	for n, d := range s.model.Devices() {
		if path != "/dev/infiniband/"+verbsName(n) {
			continue
		}
		if rdev != 0 && rdev != verbsNumber(n) {
			return nil, syscall.ENXIO
		}
		f, err := d.Open(model.Local{}, &model.OpenOptions{Privileged: s.privileged, Counter: true})
		if err != nil {
			return nil, systemError(err)
		}
		return &file{File: f, host: s.Kernel}, nil
	}
	return nil, syscall.ENOENT
}

// Watch implements [kernel.Kernel]: a device of the model that fails says so itself.
func (*system) Watch(string, func()) (run, stop func(), err error) { return nil, func() {}, nil }

// Sysfs implements [kernel.Kernel].
func (s *system) Sysfs() fs.FS { return s.sysfs }

// Release implements [kernel.Kernel]: no version of Linux is there whose mistakes
// would have to be kept out of.
func (*system) Release() string { return "" }

// PageSize implements [kernel.Kernel]: it is the driver's, in whose pages offsets of the
// device file count. Those of this machine may be larger.
func (*system) PageSize() int { return pageSize }

// pageSize is that of the machine which the model is in.
const pageSize = 4096

// Alloc implements [kernel.Kernel]. To the race detector atomic operations on memory
// outside of the Go heap order nothing. But from a device in software in one goroutine to
// who polls in another, a completion is all that orders what they do to the buffer. So
// in builds with the detector queues are in the heap.
func (s *system) Alloc(n int, opts kernel.AllocOptions) (*kernel.Mapping, error) {
	if !raceDetector || opts.HugePages || opts.Placed {
		return s.Kernel.Alloc(n, opts)
	}
	if n <= 0 || n > math.MaxInt-2*pageSize {
		return nil, syscall.EINVAL
	}
	return kernel.HeapMapping((n+pageSize-1)&^(pageSize-1), pageSize), nil
}

// Memlock implements [kernel.Kernel]: nothing is locked.
func (*system) Memlock() (limit uint64, exempt bool) { return math.MaxUint64, true }

var _ kernel.Kernel = (*system)(nil)
