package main

import "strings"

// words are the parts of C names that Go does not write with one capital.
var words = map[string]string{
	"abi": "ABI", "aes": "AES", "ah": "AH", "av": "AV", "ca": "CA", "cq": "CQ", "cqe": "CQE", "cqn": "CQN", "db": "DB",
	"dci": "DCI", "dct": "DCT", "dctn": "DCTN", "devx": "DEVX", "dgid": "DGID", "dlid": "DLID", "dm": "DM", "dmac": "DMAC", "dma": "DMA",
	"ece": "ECE", "ee": "EE", "esp": "ESP", "esn": "ESN", "fd": "FD", "fmr": "FMR", "fw": "FW", "gcm": "GCM", "gid": "GID",
	"gre": "GRE", "grh": "GRH", "guid": "GUID", "hca": "HCA", "hw": "HW", "ib": "IB", "icm": "ICM", "icv": "ICV", "id": "ID",
	"iova": "IOVA", "ip": "IP", "ipv4": "IPv4", "ipv6": "IPv6", "iv": "IV", "klms": "KLMs", "lid": "LID", "lkey": "LKey",
	"lmc": "LMC", "ls": "LS", "mac": "MAC", "mi": "MI", "mlid": "MLID", "mlx5": "MLX5", "mminfo": "MMInfo", "mpls": "MPLS",
	"mpw": "MPW", "mr": "MR", "mtu": "MTU", "mw": "MW", "nl": "NL", "nla": "NLA", "odp": "ODP", "pd": "PD", "pdn": "PDN",
	"pkey": "PKey", "pkeys": "PKeys", "pp": "PP", "psn": "PSN", "qkey": "QKey", "qp": "QP", "qpn": "QPN", "raw": "Raw",
	"rc": "RC", "rkey": "RKey", "rnr": "RNR", "roce": "RoCE", "rq": "RQ", "rqn": "RQN", "rss": "RSS", "rwq": "RWQ",
	"sge": "SGE", "sgid": "SGID", "sl": "SL", "slid": "SLID", "sm": "SM", "sq": "SQ", "sqn": "SQN", "srq": "SRQ",
	"srqn": "SRQN", "ssn": "SSN", "tcp": "TCP", "tfc": "TFC", "tirn": "TIRN", "tisn": "TISN", "tm": "TM", "tos": "TOS",
	"tso": "TSO", "ttl": "TTL", "uapi": "UAPI", "uar": "UAR", "uars": "UARs", "uc": "UC", "ud": "UD", "udp": "UDP",
	"uhw": "UHW", "va": "VA", "vhca": "VHCA", "vl": "VL", "wc": "WC", "wq": "WQ", "wqe": "WQE", "wqebb": "WQEBB",
	"wqes": "WQEs", "wqn": "WQN", "wr": "WR", "xrc": "XRC", "xrcd": "XRCD", "xsrq": "XSRQ",
}

// goName turns a C identifier into a Go name: each part between underscores
// gets a capital, and the initialisms of the field are written as such.
func goName(c string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(c, "_") {
		if w, ok := words[part]; ok {
			b.WriteString(w)
		} else if part != "" {
			b.WriteString(strings.ToUpper(part[:1]) + part[1:])
		}
	}
	return b.String()
}

// typeName is goName for a struct, union or enum tag, without the leading ib_.
func typeName(tag string) string {
	return goName(strings.TrimPrefix(tag, "ib_"))
}
