package abi_test

import (
	"testing"

	"github.com/goverbs/goverbs/abi"
)

// These sizes and offsets were measured with offsetof on kernels 5.10, 6.1 and 6.12 and on rdma-core's structs, by other means
// than the generator, so they check the table too.
func TestSizes(t *testing.T) {
	for name, s := range map[string]struct{ got, want int }{
		"ioctl header":         {abi.SizeofUverbsIoctlHdr, 24},
		"ioctl attribute":      {abi.SizeofUverbsAttr, 16},
		"query_port_resp_ex":   {abi.SizeofUverbsQueryPortRespEx, 48},
		"gid_entry":            {abi.SizeofUverbsGIDEntry, 32},
		"query_device_resp":    {abi.SizeofUverbsQueryDeviceResp, 176},
		"ex_query_device_resp": {abi.SizeofUverbsExQueryDeviceResp, 304},
		"qp_dest":              {abi.SizeofUverbsQPDest, 32},
		"ah_attr":              {abi.SizeofUverbsAHAttr, 32},
		"global_route":         {abi.SizeofUverbsGlobalRoute, 24},
		"modify_qp":            {abi.SizeofUverbsModifyQP, 112},
		"ex_modify_qp":         {abi.SizeofUverbsExModifyQP, 120},
		"query_qp":             {abi.SizeofUverbsQueryQP, 16},
		"query_qp_resp":        {abi.SizeofUverbsQueryQPResp, 128},
		"create_ah":            {abi.SizeofUverbsCreateAH, 56},
		"create_ah_resp":       {abi.SizeofUverbsCreateAHResp, 4},
		"resize_cq":            {abi.SizeofUverbsResizeCQ, 16},
		"resize_cq_resp":       {abi.SizeofUverbsResizeCQResp, 8},
		"req_notify_cq":        {abi.SizeofUverbsReqNotifyCQ, 8},
		"query_srq":            {abi.SizeofUverbsQuerySRQ, 16},
		"query_srq_resp":       {abi.SizeofUverbsQuerySRQResp, 16},
		"attach_mcast":         {abi.SizeofUverbsAttachMcast, 24},
		"alloc_mw":             {abi.SizeofUverbsAllocMW, 16},
		"alloc_mw_resp":        {abi.SizeofUverbsAllocMWResp, 8},
		"alloc_pd":             {abi.SizeofUverbsAllocPD, 8},
		"reg_mr":               {abi.SizeofUverbsRegMR, 40},
		"reg_mr_resp":          {abi.SizeofUverbsRegMRResp, 12},
		"rereg_mr":             {abi.SizeofUverbsReregMR, 48},
		"qp_cap":               {abi.SizeofUverbsQPCap, 20},
		"post_send":            {abi.SizeofUverbsPostSend, 24},
		"async_event_desc":     {abi.SizeofUverbsAsyncEventDesc, 16},
		"comp_event_desc":      {abi.SizeofUverbsCompEventDesc, 8},
		"uverbs_wc":            {abi.SizeofUverbsWC, 48},
		"rxe mminfo":           {abi.SizeofMMInfo, 16},
		"rxe_create_qp_resp":   {abi.SizeofRxeCreateQPResp, 32},
		"rxe_create_srq_resp":  {abi.SizeofRxeCreateSRQResp, 24},
		"rxe_create_ah_resp":   {abi.SizeofRxeCreateAHResp, 8},
		"rxe_queue_buf":        {abi.SizeofRxeQueueBuf, 384},
		"rxe_av":               {abi.SizeofRxeAV, 88},
		"rxe_send_wr":          {abi.SizeofRxeSendWR, 144},
		"rxe_send_wqe":         {abi.SizeofRxeSendWQE, 208},
		"rxe_recv_wqe":         {abi.SizeofRxeRecvWQE, 40},
		"rxe_sge":              {abi.SizeofRxeSGE, 16},
		"rxe data":             {abi.OffRxeQueueBufData, 384},
		"rxe inline data":      {abi.OffRxeDMAInfoInlineData, abi.OffRxeDMAInfoSGE},
	} {
		if s.got != s.want {
			t.Errorf("%s: %d bytes, want %d", name, s.got, s.want)
		}
	}
}

// Where a field stands is seen by writing it and looking at the bytes, which is how the kernel sees it.
func TestOffsets(t *testing.T) {
	var (
		wqe  abi.RxeSendWQE
		recv abi.RxeRecvWQE
		ring abi.RxeQueueBuf
		wc   abi.UverbsWC
		mod  abi.UverbsModifyQP
		dev  abi.UverbsExQueryDeviceResp
		av   abi.RxeAV
		attr abi.UverbsAttr
	)
	at := func(name string, whole []byte, set func(), want int) {
		t.Helper()
		clear(whole)
		set()
		for i, b := range whole {
			if b != 0 {
				if i/8 != want/8 || i-want > 7 || i < want {
					t.Errorf("%s stands at %d, want %d", name, i, want)
				}
				return
			}
		}
		t.Errorf("%s: setting it changed nothing", name)
	}
	const all = ^uint32(0)
	w := wqe.Bytes()
	at("opcode", w, func() { wqe.WR.Opcode = all }, 12)
	at("send_flags", w, func() { wqe.WR.SendFlags = all }, 16)
	at("imm", w, func() { *wqe.WR.Ex.ImmData() = abi.MakeBe32(all) }, 20)
	at("rdma.remote_addr", w, func() { wqe.WR.WR.Rdma().RemoteAddr = ^uint64(0) }, 24)
	at("rdma.rkey", w, func() { wqe.WR.WR.Rdma().RKey = all }, 32)
	at("atomic.swap", w, func() { wqe.WR.WR.Atomic().Swap = ^uint64(0) }, 40)
	at("atomic.rkey", w, func() { wqe.WR.WR.Atomic().RKey = all }, 48)
	at("ud.ah_num", w, func() { wqe.WR.WR.UD().AHNum = all }, 36)
	at("ud.av", w, func() { wqe.WR.WR.UD().AV.PortNum = 255 }, 56)
	at("mw.access", w, func() { wqe.WR.WR.MW().Access = all }, 52)
	at("flush.level", w, func() { wqe.WR.WR.Flush().Level = 255 }, 41)
	at("state", w, func() { wqe.State = all }, 148)
	at("iova", w, func() { wqe.IOVA = ^uint64(0) }, 152)
	at("dma.length", w, func() { wqe.DMA.Length = all }, 184)
	at("dma.num_sge", w, func() { wqe.DMA.NumSGE = all }, 196)
	at("recv dma.length", recv.Bytes(), func() { recv.DMA.Length = all }, 16)
	at("producer", ring.Bytes(), func() { ring.ProducerIndex = all }, 128)
	at("consumer", ring.Bytes(), func() { ring.ConsumerIndex = all }, 256)
	at("wc.qp_num", wc.Bytes(), func() { wc.QPNum = all }, 28)
	at("wc.slid", wc.Bytes(), func() { wc.SLID = 0xffff }, 42)
	at("wc.port_num", wc.Bytes(), func() { wc.PortNum = 255 }, 46)
	at("modify.qp_handle", mod.Bytes(), func() { mod.QPHandle = all }, 64)
	at("modify.qp_state", mod.Bytes(), func() { mod.QPState = 255 }, 96)
	at("modify.alt_timeout", mod.Bytes(), func() { mod.AltTimeout = 255 }, 109)
	at("device.phys_port_cnt", dev.Bytes(), func() { dev.Base.PhysPortCnt = 255 }, 171)
	at("device.response_length", dev.Bytes(), func() { dev.ResponseLength = all }, 180)
	at("device.max_dm_size", dev.Bytes(), func() { dev.MaxDMSize = ^uint64(0) }, 288)
	at("av.dgid", av.Bytes(), func() { av.GRH.DGID.Raw()[0] = 255 }, 8)
	at("av.dgid_addr", av.Bytes(), func() { av.DGIDAddr.SockaddrIn6().Sin6Family = 0xffff }, 60)
	at("attr.data", attr.Bytes(), func() { attr.Data = ^uint64(0) }, 8)
	at("attr.elem_id", attr.Bytes(), func() { attr.AttrData.EnumData().ElemID = 255 }, 6)
}

func TestBigEndian(t *testing.T) {
	if b := abi.MakeBe16(0x0102); b != (abi.Be16{1, 2}) || b.Uint16() != 0x0102 {
		t.Errorf("Be16 %v %#x", b, b.Uint16())
	}
	if b := abi.MakeBe32(0x01020304); b != (abi.Be32{1, 2, 3, 4}) || b.Uint32() != 0x01020304 {
		t.Errorf("Be32 %v %#x", b, b.Uint32())
	}
	if b := abi.MakeBe64(0x0102030405060708); b != (abi.Be64{1, 2, 3, 4, 5, 6, 7, 8}) || b.Uint64() != 0x0102030405060708 {
		t.Errorf("Be64 %v %#x", b, b.Uint64())
	}
}

func TestStrings(t *testing.T) {
	for want, got := range map[string]string{
		"IB_UVERBS_WC_RDMA_READ":        abi.IB_UVERBS_WC_RDMA_READ.String(),
		"IB_UVERBS_WC_OPCODE(27)":       abi.UverbsWCOpcode(27).String(),
		"RDMA_DRIVER_IRDMA":             abi.RDMA_DRIVER_I40IW.String(),
		"IB_UVERBS_QP_TYPE(4294967295)": abi.UverbsQPType(1<<32 - 1).String(),
		"0":                             abi.UverbsAccessFlags(0).String(),
		"IB_UVERBS_ACCESS_LOCAL_WRITE|IB_UVERBS_ACCESS_REMOTE_READ": abi.UverbsAccessFlags(5).String(),
		"IB_UVERBS_ACCESS_LOCAL_WRITE|0x8000":                       abi.UverbsAccessFlags(0x8001).String(),
		"IB_UVERBS_DEVICE_ATOMIC_WRITE":                             abi.UverbsDeviceCapFlags(1 << 40).String(),
		"ptr-out":                                                   abi.PtrOut.String(),
		"Kind(200)":                                                 abi.Kind(200).String(),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
