package model

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
)

// Types of memory windows.
const (
	mwType1 = 1
	mwType2 = 2
)

// mw is a memory window.
type mw struct {
	f   *File
	typ uint8
	key *mkey // its entry among the keys
	mr  *mkey // that it is bound to, nil if none
	qp  *qp   // that a window of type 2 is bound through
}

func (*mw) inUse() bool { return false }
func (*mw) rank() int   { return rankMW }

func (w *mw) end() {
	w.unbind()
	delete(w.f.dev.keys, w.key.key>>8)
	w.f.dev.mrs--
	w.key.pd.users--
}

func (w *mw) unbind() {
	if w.mr != nil {
		w.mr.windows--
	}
	w.mr, w.qp = nil, nil
}

func (c *call) allocMW(cmd *abi.Command, in []byte) error {
	var r abi.UverbsAllocMW
	if err := request.Fill(cmd, r.Bytes(), in); err != nil {
		return err
	}
	p, err := lookupWrite[*pd](c, r.PDHandle)
	d := c.f.dev
	switch {
	case err != nil:
		return err
	case r.MWType != mwType1 && r.MWType != mwType2:
		return refuse(request.EINVAL, "no such type of window")
	case d.mrs >= d.cfg.MaxMR:
		return refuse(request.ENOMEM, "max_mw reached")
	}
	var u abi.MLX5IBAllocMW
	copy(u.Bytes(), c.UHWIn())
	if u.CompMask != 0 || u.Reserved1 != 0 || u.Reserved2 != 0 {
		return refuse(request.EOPNOTSUPP, "comp_mask or reserved fields are not zero")
	}
	w := &mw{f: c.f, typ: r.MWType}
	w.key = &mkey{f: c.f, key: d.newKey(), pd: p, window: w}
	// A window begins with a key that ends in zero.
	w.key.key &^= 0xff
	d.keys[w.key.key>>8] = w.key
	d.mrs++
	p.users++
	if err := c.reply((&abi.UverbsAllocMWResp{MWHandle: c.add(w), RKey: w.key.key}).Bytes()); err != nil {
		return err
	}
	// comp_mask and response_length.
	const responseLength = 8
	return c.SetUHWOut(binary.NativeEndian.AppendUint32(make([]byte, 4), uint32(min(c.UHWOutLen(), responseLength))))
}

func (c *call) destroyMW() error {
	_, err := destroyUnused[*mw](c, abi.UVERBS_ATTR_DESTROY_MW_HANDLE)
	return err
}
