package uverbs

import "github.com/goverbs/goverbs/abi"

// PD is a protection domain: memory regions and queue pairs work together only
// within one. Its methods may be called from any goroutine.
type PD struct{ object }

// NewPD makes a protection domain.
func (d *Device) NewPD() (*PD, error) {
	done, err := d.making(kindPD)
	if err != nil {
		return nil, err
	}
	defer done()
	in, out := new(abi.UverbsAllocPD), new(abi.UverbsAllocPDResp)
	r := newCommand(d.driver, abi.IB_USER_VERBS_CMD_ALLOC_PD, in.Bytes(), out.Bytes())
	if d.provides() {
		d.provider.newPD(r)
	}
	if err := d.call("allocate PD", r); err != nil {
		return nil, err
	}
	pd := &PD{object{dev: d, handle: out.PDHandle, kind: kindPD, id: d.nextID()}}
	if err := d.hold(pd); err != nil {
		pd.free()
		return nil, err
	}
	return pd, nil
}

// Device is the device that the protection domain belongs to.
func (pd *PD) Device() *Device { return pd.dev }

// Close frees the protection domain. It returns ErrInUse while memory regions
// or queue pairs stand on it.
func (pd *PD) Close() error {
	if err := pd.retire(); err != nil {
		return err
	}
	defer pd.release()
	return pd.free()
}

func (pd *PD) free() error {
	return pd.dev.destroy("free PD", abi.UVERBS_OBJECT_PD, abi.UVERBS_METHOD_PD_DESTROY, pd.handle, nil)
}
