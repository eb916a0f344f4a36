package uverbs

import (
	"errors"
	"fmt"
	"sync"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/mlx5"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// uars are the pages of registers of a ConnectX context. One is uncached: completion
// queues are armed there, and queue pairs ring there that have no register of their
// own. The others are write-combining, for queue pairs that have.
type uars struct {
	mu     sync.Mutex
	shared *uar
	own    []*uar
	static []*uar // by page, of a context without UAR objects; nil if not mapped
	free   *freeRegisters
}

// freeRegisters are registers that no queue pair has. The cleanups of queues hold them,
// so nothing in them may lead to the device: it leads to the queues, which would then
// never be cleaned up.
type freeRegisters struct {
	mu  sync.Mutex
	all []*uarRegister
}

// uar is a page of registers.
type uar struct {
	mlx5.UAR
	handle  uint32
	mapping *kernel.Mapping
}

// uarRegister is a doorbell register for one queue pair alone.
type uarRegister struct {
	page *uar
	mlx5.Register
}

// maxOwnRegisters is how many queue pairs of a context have a register of their
// own: pages are scarce on the device. libmlx5 takes no more by default.
const maxOwnRegisters = 16

// begin makes the uncached page.
func (u *uars) begin(p *mlx5Provider) (err error) {
	u.free = new(freeRegisters)
	u.shared, err = u.alloc(p.dev, mlx5.UARUncached)
	return err
}

// beginStatic maps the first page of a context that has its own.
func (u *uars) beginStatic(p *mlx5Provider) (err error) {
	u.static = make([]*uar, p.ctx.StaticPages())
	u.shared, err = u.page(p, 0)
	return err
}

// alloc makes a page by its object.
func (u *uars) alloc(d *Device, t mlx5.UARType) (*uar, error) {
	const op = "allocate UAR"
	offset, length, id := make([]byte, 8), make([]byte, 4), make([]byte, 4)
	r := newRequest(d.driver, abi.MLX5_IB_OBJECT_UAR, abi.MLX5_IB_METHOD_UAR_OBJ_ALLOC)
	r.create(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE)
	r.constant(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, uint64(t))
	r.out(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, offset)
	r.out(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, length)
	r.out(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, id)
	if err := d.call(op, r); err != nil {
		return nil, err
	}
	page := &uar{handle: uint32(r.result(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE))}
	var err error
	page.UAR, err = mlx5.ParseUAR(t, native.Uint64(offset), native.Uint32(length), native.Uint32(id), d.kernel.PageSize())
	if err == nil {
		page.mapping, err = d.file.Map(page.MapOffset, page.MapBytes)
	}
	if err != nil {
		page.destroy(d)
		return nil, &Error{Op: op, Device: d.info.Name, Err: kernelError(err)}
	}
	return page, nil
}

// page maps a page of a context that has its own. mu is held, or nobody else knows u.
func (u *uars) page(p *mlx5Provider, i int) (*uar, error) {
	if u.static[i] != nil {
		return u.static[i], nil
	}
	size := p.dev.kernel.PageSize()
	offset, err := mlx5.MapOffset(mlx5.MapRegular, uint32(i), size)
	if err != nil {
		return nil, p.failed("map UAR", err)
	}
	m, err := p.dev.file.Map(offset, size)
	if err != nil {
		return nil, p.failed("map UAR", kernelError(err))
	}
	u.static[i] = &uar{mapping: m}
	return u.static[i], nil
}

// destroy gives a page back, which goes with its mapping.
func (page *uar) destroy(d *Device) error {
	if page.mapping != nil {
		page.mapping.Detach()
	}
	r := newRequest(d.driver, abi.MLX5_IB_OBJECT_UAR, abi.MLX5_IB_METHOD_UAR_OBJ_DESTROY)
	r.handle(abi.MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE, page.handle)
	if err := d.call("destroy UAR", r); err != nil && !isDeviceGone(err) {
		return err
	}
	return nil
}

// end gives all pages back. No queue of the device is left.
func (u *uars) end(d *Device) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	var errs []error
	for _, page := range u.static {
		if page != nil {
			page.mapping.Detach()
		}
	}
	if u.static == nil {
		for _, page := range append(u.own, u.shared) {
			errs = append(errs, page.destroy(d))
		}
	}
	return errors.Join(errs...)
}

// take returns a register for one queue pair alone, or nil: there are no more.
func (u *uars) take(p *mlx5Provider) *uarRegister {
	if p.ctx.BlueFlameBytes == 0 || !p.ctx.Dynamic() {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.free.mu.Lock()
	defer u.free.mu.Unlock()
	if len(u.free.all) == 0 {
		all := p.ctx.DynamicRegisters(mlx5.UARBlueFlame)
		if (len(u.own)+1)*len(all) > maxOwnRegisters {
			return nil
		}
		page, err := u.alloc(p.dev, mlx5.UARBlueFlame)
		if err != nil {
			return nil // the shared one does as well
		}
		u.own = append(u.own, page)
		for _, r := range all {
			u.free.all = append(u.free.all, &uarRegister{page, r})
		}
	}
	last := len(u.free.all) - 1
	r := u.free.all[last]
	u.free.all = u.free.all[:last]
	return r
}

// give takes a register back at which nobody rings any more.
func (f *freeRegisters) give(r *uarRegister) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, r)
}

// blueFlame makes the doorbell of a register for one queue pair alone.
func (r *uarRegister) blueFlame() (*mlx5.Doorbell, error) {
	bell, err := mlx5.BlueFlame(r.page.mapping.Bytes()[r.Offset:][:r.Bytes])
	return r.page.told(bell, r.Register), err
}

// told lets a device in software know of the doorbells of a register.
func (page *uar) told(bell *mlx5.Doorbell, r mlx5.Register) *mlx5.Doorbell {
	if tell := page.mapping.Tell; bell != nil && tell != nil {
		bell.Tell = func(off int, value uint64) { tell(r.Offset+off, value) }
	}
	return bell
}

// sharedBell is the doorbell of queue pairs that have none of their own, and which UAR
// it is in.
func (u *uars) sharedBell(p *mlx5Provider) (*mlx5.Doorbell, uint32, error) {
	all := p.ctx.DynamicRegisters(mlx5.UARUncached)
	if len(all) == 0 {
		return nil, 0, fmt.Errorf("the UAR has no doorbell register")
	}
	r := all[0] // as libmlx5 does: nothing is gained by others
	bell, err := mlx5.UncachedDoorbell(u.shared.mapping.Bytes()[r.Offset:][:r.Bytes])
	return u.shared.told(bell, r), u.shared.PageID + r.UAR, err
}

// staticBell is the doorbell that the driver chose for a queue pair.
func (u *uars) staticBell(p *mlx5Provider, index uint32) (*mlx5.Doorbell, error) {
	i, r, exclusive, err := p.ctx.StaticRegister(index)
	if err != nil {
		return nil, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	page, err := u.page(p, i)
	if err != nil {
		return nil, err
	}
	kind := mlx5.CombiningDoorbell
	if exclusive {
		kind = mlx5.BlueFlame
	}
	bell, err := kind(page.mapping.Bytes()[r.Offset:][:r.Bytes])
	return page.told(bell, r), err
}
