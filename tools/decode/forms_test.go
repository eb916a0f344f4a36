package decode

import (
	"strings"
	"testing"
)

// The rows of one requester error (remote access, QP 0x146) and of one responder
// error (local protection, QP 0x1e9), as bytes and as words.
const (
	zeroRow  = "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00"
	zeroWord = "00000000 00000000 00000000 00000000"
	tail146  = "00 00 00 00 00 00 88 13 08 00 01 46 f2 93 0b d3"
	word146  = "00000000 00008813 08000146 f2930bd3"
	tail1e9  = "00 00 00 00 a9 00 56 04 00 00 01 e9 00 54 e8 e2"
	word1e9  = "00000000 a9005604 000001e9 0054e8e2"
)

type values = map[string]any

var (
	is146 = values{"qpn": 0x146, "wc_status": 10, "vendor_err_synd": 0x88, "side": "requester", "s_wqe_opcode": 8, "wqe_counter": 0xf293}
	is1e9 = values{"qpn": 0x1e9, "wc_status": 4, "vendor_err_synd": 0x56, "side": "responder", "wqe_counter": 84}
)

// numbered is a dump with offsets whose last row is given.
func numbered(tail string) string {
	return "00000000: " + zeroRow + "\n00000010: " + zeroRow + "\n00000020: " + zeroRow + "\n00000030: " + tail + "\n"
}

// worded is a dump in words, as libmlx5 prints it, with a user index.
func worded(prefix, uidx, tail string) string {
	return prefix + zeroWord + "\n" + prefix + zeroWord + "\n" + prefix + uidx + " 00000000 00000000 00000000\n" + prefix + tail + "\n"
}

// forms are ways to say it that programs and people have. Their texts are made
// from the formats of the programs' sources, not from logs.
var forms = []struct {
	name string
	text string
	want []values
}{
	{"two lines of mlx5_ib", "[15601.662156] infiniband rocep33s0f0: mlx5_poll_one:527:(pid 0): Responder error cqe on cqn 0x406:\n" +
		"[15601.662158] infiniband rocep33s0f0: mlx5_poll_one:530:(pid 0): syndrome 0x5, vendor syndrome 0xf9\n" +
		"[15601.662159] infiniband rocep33s0f0: mlx5_poll_one:527:(pid 0): Requestor error cqe on cqn 0x407:\n" +
		"[15601.662161] infiniband rocep33s0f0: mlx5_poll_one:530:(pid 0): syndrome 0x15, vendor syndrome 0x81\n",
		[]values{{"side": "responder", "wc_status": 5, "syndrome": 5, "vendor_err_synd": 0xf9},
			{"side": "requester", "wc_status": 12, "syndrome": 0x15, "vendor_err_synd": 0x81}}},
	{"QP event whose words are of the wrong table", "mlx5_0/1: QP 1234 error: general error (0x81 0x0 0x91)\nmlx5_0/1: QP 1235 error: invalid EE context state (0x8a 0x0 0x0)\nmlx5_0/1: QP 77 error: unrecognized error (0x87 0x0 0x0)\n",
		[]values{{"qpn": 1234, "syndrome": 0x15, "wc_status": 12, "vendor_err_synd": 0x81, "hw_err_synd": 0x91},
			{"qpn": 1235, "syndrome": 0x12, "wc_status": 9, "vendor_err_synd": 0x8a}, {"qpn": 77, "vendor_err_synd": 0x87}}},
	{"NCCL with names", "host:1:2 [1] transport/net_ib/p2p.cc:648 NCCL WARN NET/IB: Got completion from peer 10.1.2.3<40554> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_RECV_RDMA_WITH_IMM(129) vendor_err=129 localGid ::ffff:1.1.2.2 remoteGids::ffff:1.1.1.4 hca mlx5_1\n",
		[]values{{"wc_status": 12, "vendor_err_synd": 129, "s_wqe_opcode": nil}}},
	{"NCCL from two hosts", "rain:1:2 [0] net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer sunny<1> with error 12, opcode 0, len 0, vendor err 129\n" +
		"sunny:1:2 [0] net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer rain<1> with error 12, opcode 0, len 0, vendor err 129\n",
		[]values{{"wc_status": 12, "vendor_err_synd": 129}, {"wc_status": 12, "vendor_err_synd": 129}}},
	{"NCCL lines run together", "NCCL WARN NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129 NCCL WARN NET/IB : Got completion with error 5, opcode 1, len 0, vendor err 249",
		[]values{{"wc_status": 12, "vendor_err_synd": 129}, {"wc_status": 5, "vendor_err_synd": 249}}},
	{"NVSHMEM", "[3] got completion with err:\n   syndrome=0x15, vendor_err_synd=0x81, hw_err_synd=0x1, hw_synd_type=0,\n   wqe_counter=0x12, s_wqe_opcode_qpn=0x10000123,\n   cqn=0x406, cons_idx=0x1, prod_idx=0x20, idx=0x3\n",
		[]values{{"syndrome": 0x15, "wc_status": 12, "vendor_err_synd": 0x81, "hw_err_synd": 1, "hw_synd_type": 0, "wqe_counter": 0x12, "qpn": 0x123, "s_wqe_opcode": 0x10}}},
	{"DOCA", "got completion with err: syndrome=0x13, vendor_err_synd=0x88, hw_err_synd=0, hw_synd_type=0, wqe_counter=7\n",
		[]values{{"wc_status": 10, "vendor_err_synd": 0x88, "wqe_counter": 7}}},
	{"SPDK target", "[2022-02-16 15:06:37.471223] rdma.c:3778:nvmf_rdma_log_wc_status: *ERROR*: Error on CQ 0xffff4c0921f0, (qp state 1 ibv_state 6) request 0x281468000176408, type SEND, opcode 0, status: (12): transport retry counter exceeded rqpair 0x2c1cc180 byte_len 4096\n",
		[]values{{"wc_status": 12, "side": "requester", "qpn": nil, "s_wqe_opcode": nil}}},
	{"RDS", "RDS/IB: frmr completion <10.0.0.1,10.0.0.2> status 4(local protection error), vendor_err 0x52, disconnecting and reconnecting\n",
		[]values{{"wc_status": 4, "vendor_err_synd": 0x52}}},
	{"rlib", "[qp_impl.hpp:131] poll till completion error: 12 transport retry counter exceeded\n", []values{{"wc_status": 12}}},
	{"wukong", "got bad completion with status: 0xc, vendor syndrome: 0x81, with error transport retry counter exceeded, qp n:0 t:1\n",
		[]values{{"wc_status": 12, "vendor_err_synd": 0x81, "qpn": nil}}},
	{"derecho", "> got bad completion with status: 5, vendor syndrome: 249\n", []values{{"wc_status": 5, "vendor_err_synd": 249}}},
	{"old DPDK", "PMD: unexpected CQE error 13 (0x0d) syndrome 0x04\n", []values{{"side": "requester", "syndrome": 4, "wc_status": 4}}},
	{"DPDK receive", "Unexpected CQE error syndrome 0x11 CQN = 128 RQN = 14688 wqe_counter = 1 rq_ci = 2 cq_ci = 0\n",
		[]values{{"side": "responder", "syndrome": 0x11, "wc_status": 8, "qpn": 14688, "wqe_counter": 1}}},
	{"new UCX verbs", "[ INFO ] < send completion with error: transport retry counter exceeded [qpn 0x92c wrid 0x2vendor_err 0x81] [rqpn 0x92b rlid 2 dgid fe80::1c34:da03:5b:b25d] >\n",
		[]values{{"wc_status": 12, "qpn": 0x92c, "vendor_err_synd": 0x81, "side": "requester"}}},
	{"UCX of ranks", "Sun Oct  1 17:01:10 2017[1,30]<stdout>:[1506866470.744682] [clx-065:1411 :0]       dc_verbs.c:633  UCX  ERROR Send completion with error on qp 0x10e55: transport retry counter exceeded syndrome 0x81\n" +
		"Sun Oct  1 17:01:55 2017[1,7]<stdout>:[1506866515.984779] [clx-012:26319:0]       dc_verbs.c:633  UCX  ERROR Send completion with error on qp 0xef18: transport retry counter exceeded syndrome 0x81\n",
		[]values{{"wc_status": 12, "qpn": 0x10e55, "vendor_err_synd": 0x81}, {"wc_status": 12, "qpn": 0xef18, "vendor_err_synd": 0x81}}},
	{"UCX glued to a date", "[jazz18:122053:0:122053] rc_verbs_iface.c:63   FATAL: send completion with error: transport retry counter exceededTue Feb 27 20:11:36 2018[1,387]<stderr>:\n",
		[]values{{"wc_status": 12}}},
	{"krping", "krping: Completion wth error at client:\nkrping: Failed status 10: wr_id 0\n", []values{{"wc_status": 10}}},
	{"Open MPI read", "error polling LP CQ with status RETRY EXCEEDED ERROR status number 12 for wr_id 1c0f2a8 opcode 1  vendor error 129 qp_idx 3", []values{{"wc_status": 12, "vendor_err_synd": 129, "qpn": nil}}},
	{"a question", "I get status 12 vendor 0x81 all the time, what is it?", []values{{"wc_status": 12, "vendor_err_synd": 0x81}}},
	{"UCCL", "[WARN host 1 1 pollOnce rdma/x.cc:198] pollOnce - channel_id: 4, WR_FLUSH_ERR, qp_num=0x2c91\n", []values{{"wc_status": 5, "qpn": 0x2c91}}},
	{"pretty JSON", "{\n  \"wr_id\": 1,\n  \"status\": 12,\n  \"vendor_err\": 129,\n  \"qp_num\": 419\n}\n", []values{{"wc_status": 12, "vendor_err_synd": 129, "qpn": 419}}},
	{"gdb over lines", "$1 = {\n  wr_id = 7,\n  status = IBV_WC_REM_ACCESS_ERR,\n  opcode = IBV_WC_SEND,\n  vendor_err = 136,\n  byte_len = 0,\n  qp_num = 326,\n", []values{{"wc_status": 10, "vendor_err_synd": 136, "qpn": 326, "s_wqe_opcode": nil}}},
	{"GPUDirect async", "[GDS] ERR got completion with err: idx=3, cq_type=tx, syndrome=0x4, vendor_err_synd=0x51, wqe_counter=7\n[GDS] ERR got completion with err: idx=4, cq_type=rx, syndrome=0x5, vendor_err_synd=0xf9, wqe_counter=8\n",
		[]values{{"side": "requester", "wc_status": 4, "vendor_err_synd": 0x51, "wqe_counter": 7}, {"side": "responder", "wc_status": 5, "vendor_err_synd": 0xf9, "wqe_counter": 8}}},
	{"another vendor's device, named", "irdma0: CQE error: status 12 vendor_err 0x10003 qp num 7, remote qp 9\n", []values{{"wc_status": 12, "vendor_err_synd": 0x10003, "qpn": 7}}},
	{"another vendor's device, not named", "work completion failed: status 12 vendor_err=0x10003\n", []values{{"wc_status": 12, "vendor_err_synd": 0x10003}}},
	{"ConnectX-3", "mlx4: local QP operation err (QPN 00004a, WQE index 2, vendor syndrome 70, opcode = 5e)\n", []values{{"wc_status": 2, "qpn": 0x4a}}},
	{"status and syndrome disagree", "CQE error: status 12, syndrome 0x13, vendor syndrome 0x88, hw syndrome 0x1\n", []values{{"wc_status": 10, "syndrome": 0x13, "hw_err_synd": 1}}},
	{"a status that nobody defines", "completion error: wc status 23 vendor_err 0\n", []values{{"wc_status": 23}}},
	{"a status named and numbered", "bad completion: IBV_WC_GENERAL_ERR(21), vendor code 0x9f, qp number 3\n", []values{{"wc_status": 21, "vendor_err_synd": 0x9f, "qpn": 3}}},
	{"NFS client", "rpcrdma: frwr_wc_fastreg: memory management operation error (6/0x78)\n", []values{{"wc_status": 6, "vendor_err_synd": 0x78}}},
	{"NFS server", "svcrdma_wc_send: cq.id=3 cid=7 status=TRANSPORT_RETRY? transport retry counter exceeded (12/0x81)\n", []values{{"wc_status": 12, "vendor_err_synd": 0x81}}},
	{"iSER initiator", "iser: iser_err_comp: command failure: transport retry counter exceeded (12) vend_err 0x81\n", []values{{"wc_status": 12, "vendor_err_synd": 0x81}}},
	{"iSER target", "isert: isert_print_wc: send failure: transport retry counter exceeded (12) vend_err 81\n", []values{{"wc_status": 12, "vendor_err_synd": 0x81}}},
	{"SRP", "scsi host4: ib_srp: failed receive status WR flushed (5) for CQE 0000000012345678\nscsi host4: ib_srp: failed send status 12 for iu 0000000012345678\n", []values{{"wc_status": 5}, {"wc_status": 12}}},
	{"Lustre", "LNetError: 1234:0:(o2iblnd_cb.c:1234:kiblnd_tx_complete()) Tx -> 10.0.0.1@o2ib cookie 0x1a sending 1 waiting 0: failed 12\nLNetError: 1234:0:(o2iblnd_cb.c:500:kiblnd_rx_complete()) Rx from 10.0.0.1@o2ib failed: 5\n",
		[]values{{"wc_status": 12, "side": "requester"}, {"wc_status": 5, "side": "responder"}}},
	{"GPFS", "2020-01-01_10:00:00.000+0100: [E] VERBS RDMA rdma send error IBV_WC_RETRY_EXC_ERR to 10.0.0.1 (host1) on mlx5_0 port 1 fabnum 0 vendor_err 129\n", []values{{"wc_status": 12, "vendor_err_synd": 129}}},
	{"MVAPICH", "[0->1 0] Got completion with error IBV_WC_RETRY_EXC_ERR, vendor code=0x81, dest rank=1\n[h:mpi_rank_0][handle_cqe] Msg from 1: wc.status=10 (remote access error), wc.wr_id=0x1c4d3e0, wc.opcode=0\n",
		[]values{{"wc_status": 12, "vendor_err_synd": 0x81}, {"wc_status": 10}}},
	{"Gluster", "[rdma.c:1234:gf_rdma_handle_failed_send_completion] 0-rpc-transport/rdma: send work request on `mlx5_0' returned error wc.status = 12, wc.vendor_err = 129, post->buf = 0x1, wc.byte_len = 0, post->reused = 1\n", []values{{"wc_status": 12, "vendor_err_synd": 129}}},
	{"mercury", "fi_cq_readerr() got err: 5 (Input/output error), prov_errno: 10 (remote access error)\n", []values{{"wc_status": 10}}},
	{"ksmbd", "smb_direct: Send error. status='transport retry counter exceeded (12)', opcode=0\n", []values{{"wc_status": 12}}},
	{"Mooncake", "E0222 20:07:21.119704 21 worker_pool.cpp:291] Worker: Process failed for slice (opcode: 0, source_addr: 0x7f5cfc000000, length: 65536, dest_addr: 140123979120640, local_nic: mlx5_0, peer_nic: 10.0.0.41:7712@mlx5_0, dest_rkey: 39908608, retry_cnt: 0): transport retry counter exceeded\n", []values{{"wc_status": 12, "qpn": nil}}},
	{"queue overflow", "mlx5_core 0000:01:00.0: mlx5_eq_cq_event:1:(pid 1): CQ error on CQN 0x40e, syndrome 0x1\nmlx5_0/1: QP 77 error: unrecognized status (0x41 0x0 0x0)\n", []values{{"qpn": 77, "vendor_err_synd": 0x41, "syndrome": nil, "wc_status": nil}}},
	{"general error", "completion failed with a general error\n", []values{{"wc_status": 21}}},
	{"only a vendor code", "got completion with error, vendor code 0x61\n", []values{{"wc_status": nil, "vendor_err_synd": 0x61}}},
	{"opcode and QPN of another byte order", "got completion with err: syndrome=0x4, vendor_err_synd=0x51, s_wqe_opcode_qpn=0x23010099\n", []values{{"vendor_err_synd": 0x51, "qpn": 0x10099, "s_wqe_opcode": 0x23}}},
	{"names of one operation", "dump error cqe\n" + numbered("00 00 00 00 00 00 88 13 09 00 01 46 f2 93 0b d3") + "UCX ERROR Remote access on mlx5_0:1/IB (synd 0x13 vend 0x88 hw_synd 0/0)\nUCX ERROR RC QP 0x146 wqe[1]: RDMA_WRITE s--\n",
		[]values{{"qpn": 0x146, "s_wqe_opcode": 9}}},
	{"errors of one QP", "dump error cqe\n" + numbered(tail146) + "dump error cqe\n" + numbered("00 00 00 00 00 00 f9 05 08 00 01 46 f2 94 0b d3") + "dump error cqe\n" + numbered("00 00 00 00 00 00 53 04 08 00 01 46 f2 95 0b d3"),
		[]values{is146, {"qpn": 0x146, "wc_status": 5}, {"qpn": 0x146, "wc_status": 4}}},
	{"a syndrome that nobody knows", "dump error cqe\n" + numbered("00 00 00 00 00 00 0a 7f 3f 00 01 46 f2 94 0b d3"), []values{{"syndrome": 0x7f, "wc_status": 21, "qpn": 0x146}}},
	{"a page fault that is no error", "dump error cqe\n" + numbered("00 00 00 00 00 00 93 22 00 00 01 46 00 94 0b e3"), []values{{"syndrome": 0x22, "wc_status": 16, "side": "responder"}}},
	{"queue of steering requests", "mlx5_core 0000:08:00.0: Bad OP in ASOSQ CQE: 0xd\nmlx5_core 0000:08:00.0: vendor_err_synd=88\nmlx5_core 0000:08:00.0: syndrome=13\n" + numbered(tail146), []values{is146}},
	{"od in bytes", "000000 " + zeroRow + "\n*\n000030 " + tail146 + "\n000040\n", []values{is146}},
	{"od in words", "00000000 " + zeroWord + "\n00000010 " + zeroWord + "\n00000020 " + zeroWord + "\n00000030 " + word146 + "\n", []values{is146}},
	{"od in short words", "00000000: 0000 0000 0000 0000 0000 0000 0000 0000\n00000010: 0000 0000 0000 0000 0000 0000 0000 0000\n00000020: 0000 0000 0000 0000 0000 0000 0000 0000\n00000030: 0000 0000 0000 1388 0008 4601 93f2 d30b\n", []values{is146}},
	{"odd spaces", strings.NewReplacer("00 00", "00\u200900", "00000030", "\u200b00000030", "kernel:", "kernel:\u3000").Replace("| kernel: dump error cqe\n" + numbered(tail146)), []values{is146}},
	{"Latin-1", strings.ReplaceAll("caf\xe9 dump error cqe\n"+numbered(tail146), ": ", ":\xa0"), []values{is146}},
	{"container log", `{"log":"` + strings.ReplaceAll("[1.0] mlx5_0: dump error cqe\n"+strings.TrimSuffix(numbered(tail146), "\n"), "\n", `\n","stream":"stderr"}`+"\n"+`{"log":"`) + `\n"}`, []values{is146}},
	{"newlines spelled out", strings.ReplaceAll("dump error cqe\n"+numbered(tail146), "\n", `\n`), []values{is146}},
	{"grep", indent(numbered(tail146), "/var/log/kern.log:") + indent(numbered(tail1e9), "kern.log-"), []values{is146, is1e9}},
	{"grep of words", indent("got completion with error:\n"+worded("", "00000001", word146), "12:") + indent("got completion with error:\n"+worded("", "00000001", word1e9), "99-"), []values{is146, is1e9}},
	{"table", "| offset | bytes |\n" + strings.ReplaceAll(indent(strings.TrimSuffix(numbered(tail146), "\n"), "| "), "\n", " |\n"), []values{is146}},

	{"kernel, journal", "Nov 01 10:00:00 node7 kernel: infiniband mlx5_0: dump_cqe:272:(pid 0): dump error cqe\n" + indent(numbered(tail146), "Nov 01 10:00:00 node7 kernel: "), []values{is146}},
	{"kernel in words", "mlx5_0:dump_cqe:262:(pid 0): dump error cqe\n" + worded("", "00000000", word146), []values{is146}},
	{"FreeBSD", "mlx5_ib: INFO: dump error cqe\n" + worded("mlx5_ib: INFO: ", "00000000", word1e9), []values{is1e9}},
	{"caller ids, interleaved", "[    1.0][    C0] mlx5_0: dump error cqe\n[    1.0][    C1] mlx5_1: dump error cqe\n" + weave(indent(numbered(tail146), "[    1.0][    C0] "), indent(numbered(tail1e9), "[    1.0][    C1] ")), []values{is146, is1e9}},
	{"interleaved without caller ids", weave(numbered(tail146), numbered(tail1e9)), []values{is1e9, is146}},
	{"ranks interleaved", weave("[1,0]<stderr>:mlx5: a: got completion with error:\n"+worded("[1,0]<stderr>:", "00000007", word146), "[1,1]<stderr>:mlx5: b: got completion with error:\n"+worded("[1,1]<stderr>:", "00000009", word1e9)),
		[]values{{"qpn": 0x146, "hex": hexOf("00000007", word146)}, {"qpn": 0x1e9, "hex": hexOf("00000009", word1e9)}}},
	{"processes interleaved, nothing tells them apart", weave("mlx5: a: got completion with error:\n"+worded("", "00000007", word146), "mlx5: b: got completion with error:\n"+worded("", "00000009", word1e9)),
		[]values{{"qpn": 0x146, "hex": nil}, {"qpn": 0x1e9, "hex": nil}}},
	{"glued to the next line", "mlx5: a: got completion with error:\n" + strings.TrimSuffix(worded("", "00000001", word146), "\n") + "[1496344648.549828] [vegas06:14872:0]       dc_verbs.c:614  UCX  ERROR Send completion with error on qp 0x6183: remote access error syndrome 0x88\n",
		[]values{is146, {"qpn": 0x6183, "wc_status": 10, "vendor_err_synd": 0x88}}},
	{"on one line", "dump error cqe " + strings.ReplaceAll(numbered(tail146), "\n", " "), []values{is146}},
	{"words on one line", "mlx5: got completion with error: " + strings.ReplaceAll(worded("", "00000001", word146), "\n", " "), []values{is146}},
	{"64 bytes in one string", "cqe=" + hexOf("00000001", word146), []values{is146}},
	{"rows without offsets", strings.Repeat(zeroRow+"\n", 3) + tail146 + "\n", []values{is146}},
	{"C array", "{ 0x" + strings.ReplaceAll(strings.Repeat(zeroRow+" ", 3)+tail146, " ", ", 0x") + " }", []values{is146}},
	{"hexdump -C with a star", "00000000  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00  |................|\n*\n00000030  00 00 00 00 00 00 88 13  08 00 01 46 f2 93 0b d3  |...........F....|\n00000040\n", []values{is146}},
	{"xxd", "00000000: 0000 0000 0000 0000 0000 0000 0000 0000  ................\n00000010: 0000 0000 0000 0000 0000 0000 0000 0000  ................\n00000020: 0000 0000 0000 0000 0000 0000 0000 0000  ................\n00000030: 0000 0000 0000 8813 0800 0146 f293 0bd3  ...........F....\n", []values{is146}},
	{"gdb bytes", gdbBytes(strings.Repeat(zeroRow+" ", 3) + tail146), []values{is146}},
	{"words of a little-endian machine", "00000000: " + zeroWord + "\n00000010: " + zeroWord + "\n00000020: " + zeroWord + "\n00000030: 00000000 13880000 46010008 d30b93f2\n", []values{is146}},
	{"ASCII column", strings.ReplaceAll(numbered(tail146), "\n", "  ................\n"), []values{is146}},
	{"second half of 128 bytes", numbered(zeroRow) + "00000040: " + zeroRow + "\n00000050: " + zeroRow + "\n00000060: " + zeroRow + "\n00000070: " + tail146 + "\n", []values{is146}},
	{"last row only", "[1.0] 00000030: " + tail146 + "\n", []values{{"qpn": 0x146, "hex": nil}}},
	{"cut in the middle, then another", "dump error cqe\n00000000: " + zeroRow + "\n00000010: " + zeroRow + "\ndump error cqe\n" + numbered(tail1e9), []values{is1e9}},
	{"cut words, then others", "mlx5: a: got completion with error:\n" + zeroWord + "\n" + zeroWord + "\nmlx5: a: got completion with error:\n" + worded("", "00000009", word1e9), []values{{"qpn": 0x1e9, "hex": hexOf("00000009", word1e9)}}},
	{"wrapped words", "got completion with error:\n> 00000000 00000000 00000000\n> 00000000\n> 00000000 00000000 00000000\n> 00000000\n> 00000001 00000000 00000000\n> 00000000\n> 00000000 00008813 08000146\n> f2930bd3\n", []values{is146}},
	{"carriage returns and colours", strings.ReplaceAll("\x1b[31mdump error cqe\x1b[0m\n"+numbered(tail146), "\n", "\r\n"), []values{is146}},
	{"signature error", "dump error cqe\n" + numbered("00 00 00 00 00 00 00 00 00 00 01 46 f2 93 0b c3"), []values{{"qpn": 0x146, "wc_status": nil, "side": nil}}},
}

// silent are texts in which there is nothing to find; refused of them are
// refused in words.
var silent = []struct {
	name, text string
	refused    bool
}{
	{"mthca dump", "ib_mthca 0000:04:00.0: local QP operation err (QPN 000404, WQE @ 00000000, CQN 000081, index 0)\nib_mthca 0000:04:00.0: CQE contents 00000404 00000000 00000000 00000000 02710000 00000000 00000000 ff000000\n", true},
	{"mthca named", "ib_mthca: completion failed with status 12 vendor_err 0x81\n", true},
	{"32 bytes", "CQE contents 00000404 00000000 00000000 00000000 02710000 00000000 00000000 ff000000\n", true},
	{"libmthca", "local QP operation err (QPN 450406, WQE @ 5a00, CQN 98, index 5)\n  [ 0] 00450406\n  [ 4] 00000000\n  [ 8] 00000000\n", true},
	{"firmware command", "[1.0] mlx5_core 0000:04:00.0: mlx5_cmd_check:795:(pid 9993): RTR2RTS_QP(0x504) op_mod(0x0) failed, status bad parameter(0x3), syndrome (0x4bb88f)\n", true},
	{"an announced dump of something else", "dump error cqe\n" + numbered("00 00 00 00 00 00 00 00 08 00 01 46 f2 93 0b 01"), true},
	{"a compressed block", "dump error cqe\n" + numbered("00 00 00 00 00 00 88 13 08 00 01 46 f2 93 0b df"), true},
	{"a work request", "WQE DUMP: WQ size 1024 WQ cur size 0, WQE index 0xf, len: 64\n" + numbered(tail146), false},
	{"a long dump", numbered(tail146) + "00000040: " + zeroRow + "\n00000050: " + zeroRow + "\n00000060: " + zeroRow + "\n00000070: " + tail146 + "\n00000080: " + zeroRow + "\n", false},
	{"success", "wc status 0 vendor_err 0\n", false},
	{"exit status", "job 7 completed with exit status 1\nerror: failed with status 12\n", false},
	{"HTTP", "GET /x status=404 error\n", false},
	{"a PCI device", "pci 0000:81:00.0: vendor 0x15b3 device 0x1017 status 0x10\n", false},
	{"source code", "case IBV_WC_RETRY_EXC_ERR:\n  return IBV_WC_RETRY_EXC_ERR;\nif (wc.status == IBV_WC_WR_FLUSH_ERR) {\n", false},
	{"asynchronous event", "NET/IB: mlx5_0:1 async fatal event on QP: local access violation work queue error\n", false},
	{"checksums", "d41d8cd98f00b204e9800998ecf8427e  a\ne3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  b\n", false},
	{"words announced that are something else", "got completion with error:\n" + worded("", "00000000", "00000000 00008813 08000146 f2930b03"), true},
	{"a wrapped row that does not go on", "got completion with error:\n00000000 00000000 00000000\nand so on, completion error\n", false},
	{"one byte", "dump error cqe\n00\n", false},
	{"PSID", "HTTP 0x00 0x01, status=7\ncompletion of 12 jobs failed on qp 0xfffffffffff\n", false},
	{"a QP that is well", "QP 12 error: none (see below)\nQP 12 error: x (1 2 3)\nQP 12 error: x (0x100 0x0 0x0)\n", false},
	{"memory", "USB vendor: 3\nsyndrome of the decade\nflushed 5 pages\n", false},
}

func TestForms(t *testing.T) {
	for _, c := range forms {
		t.Run(c.name, func(t *testing.T) {
			_, got, notes := scanAll(t, c.text)
			if len(got) != len(c.want) {
				t.Fatalf("found %d, want %d in\n%s\ngot %v, notes %v", len(got), len(c.want), c.text, got, notes)
			}
			for i := range c.want {
				expect(t, got, i, c.want[i])
			}
		})
	}
}

func TestNothingFound(t *testing.T) {
	for _, c := range silent {
		t.Run(c.name, func(t *testing.T) {
			_, got, notes := scanAll(t, c.text)
			if len(got) != 0 {
				t.Errorf("found %v in\n%s", got, c.text)
			}
			refused := false
			for _, n := range notes {
				refused = refused || n.Refused
			}
			if refused != c.refused {
				t.Errorf("refused in words: %v, want %v; notes %v", refused, c.refused, notes)
			}
		})
	}
}

func indent(text, by string) string {
	return by + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+by) + "\n"
}

// weave prints two texts of as many lines as two CPUs would: line by line.
func weave(a, b string) string {
	la, lb := strings.SplitAfter(a, "\n"), strings.SplitAfter(b, "\n")
	var out strings.Builder
	for i := range la {
		out.WriteString(la[i] + lb[i])
	}
	return out.String()
}

func hexOf(uidx, tail string) string {
	return strings.Repeat("0", 64) + uidx + strings.Repeat("0", 24) + strings.ReplaceAll(tail, " ", "")
}

func gdbBytes(bytes string) string {
	var out strings.Builder
	f := strings.Fields(bytes)
	for i := 0; i < len(f); i += 8 {
		out.WriteString("0x7ffff7fb" + []string{"6000", "6008", "6010", "6018", "6020", "6028", "6030", "6038"}[i/8] + ":\t0x" + strings.Join(f[i:i+8], "\t0x") + "\n")
	}
	return out.String()
}
