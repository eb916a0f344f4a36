package main

import (
	"fmt"
	"net"
	"strings"

	"github.com/goverbs/goverbs/tools/internal/printable"
	"github.com/goverbs/goverbs/uverbs"
)

// deviceReport is what devinfo says of a device. Its JSON keys stay: new ones
// may come, none goes or changes its meaning. Sizes are in bytes. GUIDs and
// GIDs are text. The keys of limits are those of ibv_devinfo -v; the values are
// numbers, and sets of bits and max_mr_size, which pass 2^53, hexadecimal text.
type deviceReport struct {
	Name         string         `json:"name"`
	Index        int            `json:"index"` // netlink's, -1 if unknown
	Driver       string         `json:"driver"`
	DriverID     uint32         `json:"driver_id"`
	File         string         `json:"file"` // in /dev, "" if there is none
	ABIVersion   int            `json:"abi_version"`
	NodeType     string         `json:"node_type"`
	Protocol     string         `json:"protocol,omitempty"`
	Netdev       string         `json:"netdev,omitempty"`
	Firmware     string         `json:"fw_ver,omitempty"` // missing if unknown, as it may be until the device is asked
	NodeGUID     string         `json:"node_guid"`
	SysImageGUID string         `json:"sys_image_guid"`
	PortCount    int            `json:"phys_port_cnt"`
	VendorID     *uint32        `json:"vendor_id,omitempty"`
	VendorPartID *uint32        `json:"vendor_part_id,omitempty"`
	HWVersion    *uint32        `json:"hw_ver,omitempty"`
	Vectors      *int           `json:"num_comp_vectors,omitempty"`
	Capabilities []string       `json:"capabilities,omitempty"`
	Atomic       string         `json:"atomic_cap,omitempty"`
	Limits       map[string]any `json:"limits,omitempty"`
	Ports        []portReport   `json:"ports,omitempty"`
	// Error says why the device could not be asked. Then vendor_id and all
	// that follows are missing.
	Error string `json:"error,omitempty"`

	limits []limit // in ibv_devinfo's order
}

// portReport is what devinfo says of a port.
type portReport struct {
	Port      int          `json:"port"`
	State     string       `json:"state"`
	PhysState string       `json:"phys_state"`
	LinkLayer string       `json:"link_layer"`
	MaxMTU    int          `json:"max_mtu"`
	ActiveMTU int          `json:"active_mtu"`
	LID       uint16       `json:"port_lid"`
	LMC       uint8        `json:"port_lmc"`
	SMLID     uint16       `json:"sm_lid"`
	Gbps      float64      `json:"rate_gbps"`
	MaxMsg    uint32       `json:"max_msg_sz"`
	Netdev    string       `json:"netdev,omitempty"`
	Caps      []string     `json:"capabilities,omitempty"`
	GIDTable  int          `json:"gid_tbl_len"`
	GIDs      []gidReport  `json:"gids"`
	PKeyTable int          `json:"pkey_tbl_len"`
	PKeys     []pkeyReport `json:"pkeys"` // without empty places

	Width          int     `json:"active_width"` // lanes, 0 if unknown
	LaneGbps       float64 `json:"lane_gbps"`    // 0 if unknown
	CapFlags       string  `json:"port_cap_flags"`
	CapFlags2      string  `json:"port_cap_flags2"`
	MaxVLs         int     `json:"max_vl_num"`
	BadPKeys       uint32  `json:"bad_pkey_cntr"`
	QKeyViolations uint32  `json:"qkey_viol_cntr"`
	SMSL           uint8   `json:"sm_sl"`
	SubnetTimeout  uint8   `json:"subnet_timeout"` // exponent: 4.096 us times two to the power of it
	InitTypeReply  uint8   `json:"init_type_reply"`

	attr uverbs.PortAttr
}

type pkeyReport struct {
	Index int    `json:"index"`
	PKey  string `json:"pkey"`
}

type gidReport struct {
	Index  int    `json:"index"`
	GID    string `json:"gid"`
	Type   string `json:"type"`
	Netdev string `json:"netdev,omitempty"`
}

// limit is a number that ibv_devinfo -v shows, and how.
type limit struct {
	name   string
	value  uint64
	format string
}

// json is the value as JSON has it.
func (l limit) json() any {
	if l.format == "%d" {
		return l.value
	}
	return fmt.Sprintf(l.format, l.value)
}

// answers are what an open device said.
type answers struct {
	attr    uverbs.DeviceAttr
	vectors int
	ports   []uverbs.PortAttr
	gids    []uverbs.GIDEntry
	pkeys   map[int][]uint16 // by port
	netdevs map[int]string   // names by index
}

// thisSystem is the system that the program runs on.
type thisSystem struct{}

func (thisSystem) devices() ([]uverbs.DeviceInfo, error) { return uverbs.Devices() }

func (thisSystem) open(name string) (*uverbs.Device, error) { return uverbs.Open(name, nil) }

// query asks a device. Network devices of other network namespaces have no name
// here.
func (t thisSystem) query(info uverbs.DeviceInfo) (*answers, error) {
	return ask(t.open, info.Name, func(index int) string {
		if n, err := net.InterfaceByIndex(index); err == nil {
			return n.Name
		}
		return ""
	})
}

// ask opens a device and asks it everything. netdev names a network device, or
// returns "".
func ask(open func(string) (*uverbs.Device, error), name string, netdev func(index int) string) (a *answers, err error) {
	d, err := open(name)
	if err != nil {
		return nil, err
	}
	defer func() {
		if cerr := d.Close(); err == nil && cerr != nil {
			a, err = nil, cerr
		}
	}()
	a = &answers{attr: d.Attr(), vectors: d.CompletionVectors(), pkeys: make(map[int][]uint16), netdevs: make(map[int]string)}
	if a.gids, err = d.GIDTable(); err != nil {
		return nil, err
	}
	for port := 1; port <= a.attr.Ports; port++ {
		p, err := d.PortAttr(port)
		if err != nil {
			return nil, err
		}
		a.ports = append(a.ports, p)
		for i := range p.PKeys {
			key, err := d.PKey(port, i)
			if err != nil {
				break // without /sys there is no way to ask
			}
			a.pkeys[port] = append(a.pkeys[port], key)
		}
	}
	for _, g := range a.gids {
		if name := netdev(g.Ifindex); name != "" {
			a.netdevs[g.Ifindex] = name
		}
	}
	return a, nil
}

// newDeviceReport says what discovery knows.
func newDeviceReport(info uverbs.DeviceInfo) *deviceReport {
	r := &deviceReport{
		Name: info.Name, Index: info.Index, Driver: info.Driver.String(), DriverID: uint32(info.Driver), File: info.Path,
		ABIVersion: info.ABIVersion, NodeType: info.NodeType.String(), Protocol: info.Protocol, Netdev: info.Netdev,
		Firmware: info.Firmware, NodeGUID: info.NodeGUID.String(), SysImageGUID: info.SysImageGUID.String(), PortCount: info.Ports,
	}
	if info.Err != nil {
		r.Error = printable.Error(info.Err)
	}
	return r
}

// fill adds what the device said.
func (r *deviceReport) fill(a *answers) {
	at := &a.attr
	r.Firmware, r.NodeGUID, r.SysImageGUID = at.Firmware, at.NodeGUID.String(), at.SysImageGUID.String()
	r.PortCount, r.Vectors, r.Atomic = at.Ports, &a.vectors, at.Atomic.String()
	r.VendorID, r.VendorPartID, r.HWVersion = &at.VendorID, &at.VendorPartID, &at.HWVersion
	r.Capabilities = words(at.Caps.String())
	r.limits = deviceLimits(at)
	r.Limits = make(map[string]any, len(r.limits))
	for _, l := range r.limits {
		r.Limits[l.name] = l.json()
	}
	for _, p := range a.ports {
		r.Ports = append(r.Ports, newPortReport(p, a, r.Netdev))
	}
}

func newPortReport(p uverbs.PortAttr, a *answers, netdev string) portReport {
	r := portReport{
		Port: p.Port, State: p.State.String(), PhysState: p.PhysState.String(), LinkLayer: p.LinkLayer.String(),
		MaxMTU: p.MaxMTU, ActiveMTU: p.ActiveMTU, LID: p.LID, LMC: p.LMC, SMLID: p.SMLID, Gbps: p.Gbps(), MaxMsg: p.MaxMessage,
		Caps: words(p.Caps.String()), GIDTable: p.GIDs, PKeyTable: p.PKeys, GIDs: []gidReport{}, PKeys: []pkeyReport{}, attr: p,
		Width: p.Width, LaneGbps: p.LaneGbps, CapFlags: fmt.Sprintf("%#08x", uint32(p.Caps)), CapFlags2: fmt.Sprintf("%#04x", p.Caps2), MaxVLs: p.MaxVLs,
		BadPKeys: p.BadPKeys, QKeyViolations: p.QKeyViolations, SMSL: p.SMSL, SubnetTimeout: p.SubnetTimeout, InitTypeReply: p.InitTypeReply,
	}
	for _, g := range a.gids {
		if g.Port != p.Port {
			continue
		}
		name := a.netdevs[g.Ifindex]
		r.GIDs = append(r.GIDs, gidReport{Index: g.Index, GID: g.GID.String(), Type: g.Type.String(), Netdev: name})
		if r.Netdev == "" {
			r.Netdev = name
		}
	}
	if r.Netdev == "" && p.Port == 1 {
		r.Netdev = netdev
	}
	for i, key := range a.pkeys[p.Port] {
		if key != 0 {
			r.PKeys = append(r.PKeys, pkeyReport{i, fmt.Sprintf("0x%04x", key)})
		}
	}
	return r
}

// words splits the text of a set of flags.
func words(flags string) []string {
	if flags == "0" {
		return nil
	}
	return strings.Split(flags, "|")
}

// deviceLimits are the numbers of ibv_devinfo -v, in its order.
func deviceLimits(a *uverbs.DeviceAttr) []limit {
	dec := func(name string, v int) limit { return limit{name, uint64(v), "%d"} }
	hex := func(name string, v uint64) limit { return limit{name, v, "%#x"} }
	return []limit{
		hex("max_mr_size", a.MaxMRSize), hex("page_size_cap", a.PageSizes),
		dec("max_qp", a.MaxQP), dec("max_qp_wr", a.MaxQPWR), hex("device_cap_flags", uint64(a.Caps)),
		dec("max_sge", a.MaxSGE), dec("max_sge_rd", a.MaxSGERead), dec("max_cq", a.MaxCQ), dec("max_cqe", a.MaxCQE),
		dec("max_mr", a.MaxMR), dec("max_pd", a.MaxPD), dec("max_qp_rd_atom", a.MaxQPReadDepth),
		dec("max_ee_rd_atom", a.MaxEEReadDepth), dec("max_res_rd_atom", a.MaxReadDepth),
		dec("max_qp_init_rd_atom", a.MaxQPInitReadDepth), dec("max_ee_init_rd_atom", a.MaxEEInitReadDepth),
		dec("max_ee", a.MaxEE), dec("max_rdd", a.MaxRDD), dec("max_mw", a.MaxMW),
		dec("max_raw_ipv6_qp", a.MaxRawIPv6QP), dec("max_raw_ethy_qp", a.MaxRawEtherQP),
		dec("max_mcast_grp", a.MaxMulticastGroups), dec("max_mcast_qp_attach", a.MaxMulticastQPs),
		dec("max_total_mcast_qp_attach", a.MaxTotalMulticastQPs), dec("max_ah", a.MaxAH), dec("max_fmr", a.MaxFMR),
		dec("max_srq", a.MaxSRQ), dec("max_srq_wr", a.MaxSRQWR), dec("max_srq_sge", a.MaxSRQSGE),
		dec("max_pkeys", a.MaxPKeys), dec("local_ca_ack_delay", int(a.LocalAckDelay)),
		hex("general_odp_caps", a.ODP.General), hex("rc_odp_caps", uint64(a.ODP.RC)), hex("uc_odp_caps", uint64(a.ODP.UC)),
		hex("ud_odp_caps", uint64(a.ODP.UD)), hex("xrc_odp_caps", uint64(a.ODP.XRC)),
		hex("completion_timestamp_mask", a.TimestampMask), {"hca_core_clock_khz", a.CoreClock, "%d"},
		dec("max_rwq_indirection_tables", a.MaxRWQTables), dec("max_rwq_indirection_table_size", a.MaxRWQTableLen),
		hex("rx_hash_qp_types", uint64(a.RSSQPTypes)), dec("max_wq_type_rq", a.MaxWQTypeRQ),
		hex("raw_packet_caps", uint64(a.RawPacketCaps)), {"max_dm_size", a.MaxDeviceMemory, "%d"},
		dec("max_num_tags", int(a.MaxTagMatchingTags)), dec("max_cq_count", int(a.MaxModerationCount)), dec("max_cq_period", int(a.MaxModerationPeriod)),
	}
}
