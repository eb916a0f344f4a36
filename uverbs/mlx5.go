package uverbs

import (
	"fmt"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/mlx5"
)

// mlx5Provider is for ConnectX: the memory of queues is the program's, and the
// device has registers in pages of its file.
type mlx5Provider struct {
	dev      *Device
	static   bool   // the context has doorbell registers of its own
	reply    []byte // the driver's answer to the making of the context
	ctx      *mlx5.Context
	ethernet bool
	uars     uars
	records  records
	vectors  mlx5.AddressVectors
	node     int // of the device, a NUMANode's next
}

// exclusiveRegisters is how many doorbell registers of a context that has its own
// serve one queue pair each: what libmlx5 asks for.
const exclusiveRegisters = 4

func (p *mlx5Provider) context(r *request) error {
	in, err := mlx5.ContextRequest{DynamicUARs: !p.static}.Encode()
	if err != nil {
		return err
	}
	p.reply = make([]byte, abi.SizeofMLX5IBAllocUcontextResp)
	r.in(abi.UVERBS_ATTR_UHW_IN, in)
	r.out(abi.UVERBS_ATTR_UHW_OUT, p.reply)
	return nil
}

func (p *mlx5Provider) begin() error {
	const op = "open"
	if err := p.read(); err != nil {
		return err
	}
	port, err := p.dev.PortAttr(1)
	if err != nil {
		return err
	}
	p.ethernet = port.LinkLayer == LinkEthernet
	p.node = p.dev.busNode()
	if !p.ctx.Dynamic() {
		return p.beginStatic()
	}
	err = p.uars.begin(p)
	if err == nil {
		return nil
	}
	// A kernel that cannot give the page that all queues need, gives it with a
	// context of the older kind.
	p.static = true
	if e := p.dev.reopen(); e != nil {
		return err
	}
	if e := p.read(); e != nil {
		return e
	}
	if p.ctx.Dynamic() {
		return err
	}
	return p.beginStatic()
}

func (p *mlx5Provider) beginStatic() error { return p.uars.beginStatic(p) }

// read reads the answer to the making of the context.
func (p *mlx5Provider) read() error {
	ctx, err := mlx5.ParseContext(p.reply, exclusiveRegisters, p.dev.kernel.PageSize())
	if err != nil {
		return &Error{Op: "open", Device: p.dev.info.Name, Err: err}
	}
	if ctx.CQEVersion == 0 {
		return &Error{Op: "open", Device: p.dev.info.Name, Err: fmt.Errorf("%w: completions of this device carry no user index (CQE version 0): ConnectX-4 and later do", ErrNotSupported)}
	}
	p.ctx = ctx
	return nil
}

func (p *mlx5Provider) end() error { return p.uars.end(p.dev) }

func (p *mlx5Provider) operations(t QPType) opSet { return opSet(transport(t).Operations()) }

// receivesNameQP: the user index in a completion is the queue pair's.
func (*mlx5Provider) receivesNameQP() bool { return true }

// newPD makes room for the number of the protection domain, which the driver wants
// to say.
func (*mlx5Provider) newPD(r *request) {
	r.out(abi.UVERBS_ATTR_UHW_OUT, new(abi.MLX5IBAllocPDResp).Bytes())
}

// transport is what package mlx5 calls the type.
func transport(t QPType) mlx5.Transport {
	switch t {
	case RC:
		return mlx5.RC
	case UC:
		return mlx5.UC
	}
	return mlx5.UD
}

// failed wraps an error of package mlx5. It would be inlined in two dozen places.
//
//go:noinline
func (p *mlx5Provider) failed(op string, err error) error {
	return &Error{Op: op, Device: p.dev.info.Name, Err: err}
}
