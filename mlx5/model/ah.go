package model

import (
	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
)

// ehostunreach is what address resolution says of an address that nobody has.
const ehostunreach request.Errno = 113

// ah is an address handle. The device knows none: the library writes what is in it
// into requests; the kernel resolves the MAC address.
type ah struct{ pd *pd }

func (*ah) inUse() bool { return false }
func (a *ah) end()      { a.pd.users-- }
func (*ah) rank() int   { return rankAH }

func (c *call) createAH(cmd *abi.Command, in []byte) error {
	var r abi.UverbsCreateAH
	if err := request.Fill(cmd, r.Bytes(), in); err != nil {
		return err
	}
	p, err := lookupWrite[*pd](c, r.PDHandle)
	if err != nil {
		return err
	}
	a := &r.Attr
	source := c.f.dev.port(uint64(a.PortNum))
	if source == nil {
		return refuse(request.EINVAL, "no such port")
	}
	var mac [6]byte
	if !source.ib || a.IsGlobal != 0 {
		switch {
		case a.IsGlobal == 0:
			return refuse(request.EINVAL, "an address on RoCE is global")
		case int(a.GRH.SGIDIndex) >= gidTableLength:
			return refuse(request.EINVAL, "GID index beyond the table")
		case source.gid(int(a.GRH.SGIDIndex)).empty():
			return refuse(request.ENODATA, "the source GID's entry is empty")
		}
	}
	if !source.ib {
		if mac, err = c.f.m.resolve(a.GRH.DGID); err != nil {
			return err
		}
	}
	p.users++
	if err := c.reply((&abi.UverbsCreateAHResp{AHHandle: c.add(&ah{p})}).Bytes()); err != nil {
		return err
	}
	return c.SetUHWOut((&abi.MLX5IBCreateAHResp{ResponseLength: uint32(min(c.UHWOutLen(), abi.SizeofMLX5IBCreateAHResp)), DMAC: mac}).Bytes())
}

func (c *call) destroyAH() error {
	_, err := destroyUnused[*ah](c, abi.UVERBS_ATTR_DESTROY_AH_HANDLE)
	return err
}

// resolve finds the Ethernet address of a GID: by asking around, or from the
// link-local address itself.
func (m *Model) resolve(gid [16]byte) (mac [6]byte, err error) {
	switch p := m.gids[gid]; {
	case p != nil:
		return p.mac(), nil
	case isGroup(gid):
		return groupMAC(gid), nil
	case gid[0] == 0xfe && gid[1]&0xc0 == 0x80:
		return [6]byte{gid[8] ^ 2, gid[9], gid[10], gid[13], gid[14], gid[15]}, nil
	}
	return mac, refuse(ehostunreach, "nobody on the network has the GID")
}
