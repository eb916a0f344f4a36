package uverbs

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/abi"
)

// Each attribute goes to its own field of the request and sets its own bit of the mask
// (enum ib_qp_attr_mask): two that are swapped would connect queue pairs that agree with
// each other by accident, and with no other library.
func TestAttributeFields(t *testing.T) {
	for name, c := range map[string]struct {
		attr QPAttr
		mask uint32
		want abi.UverbsModifyQP
	}{
		"access":          {AttrAccess(RemoteWrite | RemoteRead), 1 << 3, abi.UverbsModifyQP{QPAccessFlags: 6}},
		"P_Key index":     {AttrPKeyIndex(0x1234), 1 << 4, abi.UverbsModifyQP{PKeyIndex: 0x1234}},
		"port":            {AttrPort(2), 1 << 5, abi.UverbsModifyQP{PortNum: 2}},
		"Q_Key":           {AttrQKey(0x12345678), 1 << 6, abi.UverbsModifyQP{QKey: 0x12345678}},
		"path MTU":        {AttrPathMTU(4096), 1 << 8, abi.UverbsModifyQP{PathMTU: 5}},
		"retries":         {AttrRetries(5), 1 << 10, abi.UverbsModifyQP{RetryCnt: 5}},
		"RNR retries":     {AttrRNRRetries(4), 1 << 11, abi.UverbsModifyQP{RNRRetry: 4}},
		"receive PSN":     {AttrRecvPSN(0x123456), 1 << 12, abi.UverbsModifyQP{RQPSN: 0x123456}},
		"read depth":      {AttrReadDepth(7), 1 << 13, abi.UverbsModifyQP{MaxRdAtomic: 7}},
		"send PSN":        {AttrSendPSN(0x654321), 1 << 16, abi.UverbsModifyQP{SQPSN: 0x654321}},
		"peer read depth": {AttrPeerReadDepth(9), 1 << 17, abi.UverbsModifyQP{MaxDestRdAtomic: 9}},
		"destination QPN": {AttrDestQPN(0xabcdef), 1 << 20, abi.UverbsModifyQP{DestQPNum: 0xabcdef}},
		"service level":   {AttrServiceLevel(3), 1 << 7, abi.UverbsModifyQP{Dest: abi.UverbsQPDest{SL: 3}}},
		"LID":             {AttrDLID(0x4321), 1 << 7, abi.UverbsModifyQP{Dest: abi.UverbsQPDest{DLID: 0x4321}}},
	} {
		if c.attr.err != nil {
			t.Errorf("%s: %v", name, c.attr.err)
			continue
		}
		var got abi.UverbsModifyQP
		c.attr.apply(&got)
		c.want.AttrMask = c.mask
		if d := cmp.Diff(c.want.Bytes(), got.Bytes()); d != "" {
			t.Errorf("%s: mask %#x, want %#x; request:\n%s", name, got.AttrMask, c.mask, d)
		}
	}
}
