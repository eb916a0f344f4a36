package model

import (
	"slices"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
)

// isGroup says whether a GID is a multicast address.
func isGroup(g [16]byte) bool {
	return g[0] == 0xff || (GID{Addr: g}).isIPv4() && g[12]>>4 == 14
}

// groupMAC is the Ethernet address of a group.
func groupMAC(g [16]byte) [6]byte {
	if (GID{Addr: g}).isIPv4() {
		return [6]byte{0x01, 0x00, 0x5e, g[13] & 0x7f, g[14], g[15]}
	}
	return [6]byte{0x33, 0x33, g[12], g[13], g[14], g[15]}
}

// attachMulticast and detachMulticast enter and leave a group.
func (c *call) attachMulticast(cmd *abi.Command, in []byte) error {
	q, group, err := c.member(cmd, in)
	if err == nil && !slices.Contains(q.groups, group) {
		q.groups = append(q.groups, group)
	}
	return err
}

func (c *call) detachMulticast(cmd *abi.Command, in []byte) error {
	q, group, err := c.member(cmd, in)
	if err != nil {
		return err
	}
	i := slices.Index(q.groups, group)
	if i < 0 {
		return refuse(request.EINVAL, "the queue pair is not in the group")
	}
	q.groups = slices.Delete(q.groups, i, i+1)
	return nil
}

func (c *call) member(cmd *abi.Command, in []byte) (*qp, [16]byte, error) {
	var r abi.UverbsAttachMcast // struct ib_uverbs_detach_mcast is the same
	if err := request.Fill(cmd, r.Bytes(), in); err != nil {
		return nil, r.GID, err
	}
	q, err := lookupWrite[*qp](c, r.QPHandle)
	switch {
	case err != nil:
		return nil, r.GID, err
	case q.typ != typeUD || !isGroup(r.GID):
		return nil, r.GID, refuse(request.EINVAL, "a group is for UD queue pairs, and its GID a multicast one")
	}
	return q, r.GID, nil
}

// multicast carries a datagram to all members of a group, wherever they are; the sender
// too if it is one, unless it was made not to hear itself.
func (q *qp) multicast(w *wqe, source GID) verdict {
	a := &w.av
	if !q.port.up || !q.port.ib && a.mac != groupMAC(a.gid) {
		return verdict{}
	}
	for _, d := range q.d.m.devices {
		for _, r := range d.pairs() {
			if !slices.Contains(r.groups, a.gid) || !q.reaches(r, a) || r == q && q.notSelf {
				continue
			}
			// The list of what is sent was used up by the one before.
			if reason := q.gather(w); reason != keyGood {
				return fails(syndLocalProt, vendGather+reason)
			}
			if v := r.arrive(q, w, source); v.outcome == failed {
				return v
			}
		}
	}
	return verdict{}
}

// reaches says whether a datagram that has come to a queue pair's port is taken there.
func (q *qp) reaches(r *qp, a *addressVector) bool {
	to := r.port
	if r.typ != typeUD || to == nil || !to.up || to.d.gone || to.ib != q.port.ib || r.state < stateRTR || r.state == stateErr || !matchKeys(q.port.pkey(q), to.pkey(r)) {
		return false
	}
	// A Q_Key with the highest bit set stands for the sender's own.
	key := a.qkey
	if key&privateQKey != 0 {
		key = q.attr.qkey
	}
	if key != r.attr.qkey {
		to.badQKeys++
		return false
	}
	return true
}
