package uverbs

import (
	"fmt"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// rxeProvider is for soft-RoCE: the kernel has the memory of all queues, and says
// where in the device's file it is. It keeps nothing by itself.
type rxeProvider struct{ dev *Device }

func (*rxeProvider) context(*request) error { return nil }
func (*rxeProvider) begin() error           { return nil }
func (*rxeProvider) end() error             { return nil }
func (*rxeProvider) receivesNameQP() bool   { return false }
func (*rxeProvider) newPD(*request)         {}

func (*rxeProvider) operations(t QPType) opSet {
	switch t {
	case RC:
		return opsRC
	case UC:
		return opsUC
	}
	return opsUD
}

// mapRing maps a queue that the kernel's reply describes.
func (d *Device) mapRing(op string, mi abi.MMInfo) (*kernel.Mapping, error) {
	const limit = 1 << 34 // far above what any depth asks for
	if mi.Size == 0 || uint64(mi.Size) > limit || mi.Offset > 1<<62 {
		return nil, &Error{Op: op, Device: d.info.Name, Err: fmt.Errorf("the kernel describes a queue of %d bytes at offset %#x", mi.Size, mi.Offset)}
	}
	m, err := d.file.Map(int64(mi.Offset), int(mi.Size))
	if err != nil {
		return nil, &Error{Op: op, Device: d.info.Name, Err: kernelError(err), Hint: fmt.Sprintf("mapping %d bytes of queue memory", mi.Size)}
	}
	return m, nil
}

// rxeAH is soft-RoCE's half of an address handle: a number, since Linux 5.15.
type rxeAH struct {
	dev   *Device
	reply abi.RxeCreateAHResp
}

func (p *rxeProvider) newAH(ah *AH) ahHalf { return &rxeAH{dev: p.dev} }

func (a *rxeAH) create(r *request) { r.out(abi.UVERBS_ATTR_UHW_OUT, a.reply.Bytes()) }

func (a *rxeAH) made(op string, _ *abi.UverbsAHAttr) (uint32, error) {
	if a.reply.AHNum == 0 {
		return 0, fmt.Errorf("goverbs: %s: %s: %w by this kernel: soft-RoCE takes address handles by number since Linux 5.15, and this one gave none",
			a.dev.info.Name, op, ErrNotSupported)
	}
	return a.reply.AHNum, nil
}

func (*rxeAH) detach() {}
