package pingpong

import (
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/goverbs/goverbs/uverbs"
)

// Address is where a side's queue pair is found.
type Address struct {
	// LID is the port's local identifier on InfiniBand, 0 on RoCE.
	LID uint16
	// QPN is the queue pair's number and PSN the packet sequence number that
	// it begins with, 24 bits each.
	QPN, PSN uint32
	// GID is the port's address. ibv_rc_pingpong has a zero one unless it is
	// told an index.
	GID uverbs.GID
}

// String is the address in the words of ibv_rc_pingpong.
func (a Address) String() string {
	return fmt.Sprintf("LID 0x%04x, QPN 0x%06x, PSN 0x%06x, GID %s", a.LID, a.QPN, a.PSN, a.GID)
}

// On the wire an address is LID, QPN, PSN and GID in hexadecimal digits, 4, 6, 6
// and 32 of them, with colons between and a zero byte at the end.
const (
	addressSize = 4 + 1 + 6 + 1 + 6 + 1 + 32 + 1
	most24      = 1<<24 - 1
)

// appendTo appends the address as it goes over the wire.
func (a Address) appendTo(b []byte) []byte {
	return fmt.Appendf(b, "%04x:%06x:%06x:%x\x00", a.LID, a.QPN&most24, a.PSN&most24, a.GID[:])
}

// parseAddress reads what the peer says of itself, which may be anything.
func parseAddress(msg []byte) (Address, error) {
	var a Address
	if len(msg) != addressSize || msg[4] != ':' || msg[11] != ':' || msg[18] != ':' || msg[addressSize-1] != 0 {
		return a, notAnAddress(msg)
	}
	lid, err1 := strconv.ParseUint(string(msg[:4]), 16, 16)
	qpn, err2 := strconv.ParseUint(string(msg[5:11]), 16, 24)
	psn, err3 := strconv.ParseUint(string(msg[12:18]), 16, 24)
	n, err4 := hex.Decode(a.GID[:], msg[19:addressSize-1])
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil || n != len(a.GID) {
		return Address{}, notAnAddress(msg)
	}
	a.LID, a.QPN, a.PSN = uint16(lid), uint32(qpn), uint32(psn)
	return a, nil
}

func notAnAddress(msg []byte) error {
	return fmt.Errorf("%q is not an address LID:QPN:PSN:GID: the other end is neither verbs pingpong nor ibv_rc_pingpong", msg)
}
