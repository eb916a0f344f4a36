package uverbs

import (
	"fmt"
	"math/rand/v2"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/mlx5"
)

// mlx5AH is ConnectX's half of an address handle: the kernel finds the hardware
// address, and every request carries all of it.
type mlx5AH struct {
	p      *mlx5Provider
	ah     *AH
	number uint32
	resp   abi.MLX5IBCreateAHResp
}

func (p *mlx5Provider) newAH(ah *AH) ahHalf { return &mlx5AH{p: p, ah: ah} }

func (h *mlx5AH) create(r *request) {
	if h.p.ctx.CreateAHData {
		r.out(abi.UVERBS_ATTR_UHW_OUT, h.resp.Bytes())
	}
}

func (h *mlx5AH) made(op string, a *abi.UverbsAHAttr) (uint32, error) {
	p := h.p
	v := mlx5.AddressVector{
		Ethernet: p.ethernet, SL: a.SL, Global: a.IsGlobal != 0, DestGID: a.GRH.DGID, SourceIndex: a.GRH.SGIDIndex,
		FlowLabel: a.GRH.FlowLabel, TrafficClass: a.GRH.TrafficClass, HopLimit: a.GRH.HopLimit, DestLID: a.DLID,
	}
	if v.Ethernet {
		if !p.ctx.CreateAHData {
			return 0, fmt.Errorf("goverbs: %s: %s: %w by this kernel: its driver does not say the hardware address", p.dev.info.Name, op, ErrNotSupported)
		}
		mac, err := mlx5.ParseCreateAH(h.resp.Bytes())
		if err != nil {
			return 0, p.failed(op, err)
		}
		v.DestMAC = mac
		if h.ah.source.Type == GIDTypeRoCEv2 {
			v.UDPPort = mlx5.UDPSourcePort(v.FlowLabel, rand.Uint32())
		}
	}
	n, err := p.vectors.Add(&v)
	if err != nil {
		return 0, p.failed(op, err)
	}
	h.number = n
	return n, nil
}

func (h *mlx5AH) detach() {
	if h.number != 0 {
		h.p.vectors.Remove(h.number)
		h.number = 0
	}
}
