package uverbs

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/mlx5"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// Clock is the clock of a device, which stamps the completions of queues that were
// made with CQOptions.Timestamps. Its methods may be called from any goroutine; they
// read two pages of memory, and neither lock nor enter the kernel.
type Clock struct {
	object
	info    *mlx5.Clock
	page    *kernel.Mapping // of info
	counter *kernel.Mapping // nil: the kernel does not show it
	offset  int             // of the counter in its page
	over    atomic.Bool
}

// Clock maps the device's clock. It returns ErrNotSupported if the device has none, or
// its driver does not say how to translate its ticks: soft-RoCE has none. Close lets go
// of it, and so does closing the device.
func (d *Device) Clock() (*Clock, error) {
	const op = "map clock"
	lacks := func(why string) error {
		return &Error{Op: op, Device: d.info.Name, Err: ErrNotSupported, Hint: why}
	}
	p, ok := d.provider.(*mlx5Provider)
	switch {
	case !ok:
		return nil, lacks(fmt.Sprintf("the driver is %v; that of ConnectX, mlx5, has one", Driver(d.driver)))
	case !p.ctx.ClockPage:
		return nil, lacks("the driver does not say how its ticks become time")
	}
	done, err := d.making(kindClock)
	if err != nil {
		return nil, err
	}
	defer done()
	c := &Clock{object: object{dev: d, kind: kindClock, id: d.nextID()}, offset: p.ctx.CoreClockOffset}
	if c.page, err = c.mapPage(mlx5.MapClockInfo); err != nil {
		return nil, &Error{Op: op, Device: d.info.Name, Err: kernelError(err)}
	}
	if p.ctx.CoreClock {
		c.counter, _ = c.mapPage(mlx5.MapCoreClock) // large pages would show more than that: then it is refused
	}
	c.letGo = func() { c.unmap() }
	if c.info, err = mlx5.NewClock(c.page.Bytes()); err == nil {
		err = d.hold(c)
	}
	if err != nil {
		c.unmap()
		return nil, err
	}
	return c, nil
}

func (c *Clock) mapPage(what mlx5.MapCommand) (*kernel.Mapping, error) {
	k := c.dev.kernel
	off, err := mlx5.MapOffset(what, 0, k.PageSize())
	if err != nil {
		return nil, err
	}
	return c.dev.file.MapRead(off, k.PageSize())
}

// Time is when the device stamped a completion, WC.Timestamp, as the real-time clock of
// the kernel has it: what time.Now says, to within what the kernel's look at the device
// takes, some microseconds. Stamps older than half a turn of the device's counter are
// taken for later ones: that is minutes at least.
//
// The error wraps ErrBusy when the kernel was changing its page all the while: the stamp
// is as good as it was, try again. It wraps ErrInvalid for 0, which is no stamp.
func (c *Clock) Time(stamp uint64) (time.Time, error) {
	if stamp == 0 {
		return time.Time{}, invalid("time of a completion of %s that has no stamp: it failed, or its queue was made without CQOptions.Timestamps", c.dev.info.Name)
	}
	info, err := c.info.Read()
	if err = c.checked("read clock", err); err != nil {
		return time.Time{}, err
	}
	return time.Unix(0, int64(info.Nanoseconds(stamp))), nil
}

// Ticks is what the device's counter says now: what a completion of this moment would be
// stamped with. It returns ErrNotSupported where the kernel does not show the counter,
// as kernels with pages larger than 4096 bytes, and ErrBusy as Time.
func (c *Clock) Ticks() (uint64, error) {
	const op = "read counter"
	if c.counter == nil {
		return 0, &Error{Op: op, Device: c.dev.info.Name, Err: ErrNotSupported, Hint: "the kernel does not show it to programs"}
	}
	if fresh := c.counter.Fresh; fresh != nil {
		fresh()
	}
	ticks, err := mlx5.Counter(c.counter.Bytes(), c.offset)
	if err = c.checked(op, err); err != nil {
		return 0, err
	}
	return ticks, nil
}

// checked is the error of a look at the pages. Those of a clock that was closed by the
// end of it may have been zeros already.
func (c *Clock) checked(op string, err error) error {
	over := c.over.Load()
	runtime.KeepAlive(c)
	switch {
	case over && !c.isClosed():
		err = ErrDeviceGone // which has taken the pages
	case over:
		err = os.ErrClosed
	case errors.Is(err, mlx5.ErrClockBusy):
		err = fmt.Errorf("%w: %w", ErrBusy, err)
	case err == nil:
		return nil
	}
	return &Error{Op: op, Device: c.dev.info.Name, Err: err}
}

// Close lets go of the pages. Those who read the clock get os.ErrClosed from then on, and
// before that ErrDeviceGone if the device is gone.
func (c *Clock) Close() error {
	if err := c.retire(); err != nil {
		return err
	}
	defer c.release()
	return c.unmap()
}

func (c *Clock) unmap() error {
	c.over.Store(true)
	err := c.page.Detach()
	if c.counter != nil {
		err = errors.Join(err, c.counter.Detach())
	}
	return err
}
