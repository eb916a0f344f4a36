package main

import (
	"fmt"
	"io"
	"strings"
)

// printer writes reports as text, laid out as ibv_devinfo does. The first
// error ends it.
type printer struct {
	w       io.Writer
	verbose bool
	err     error
}

// line writes one "name: value" line at an indentation, in tabs. Values stand
// in one column.
func (p *printer) line(indent int, name, format string, args ...any) {
	if p.err != nil {
		return
	}
	const column = 32
	pad := max(1, (column-len(name)-1+7)/8)
	_, p.err = fmt.Fprintf(p.w, "%s%s:%s%s\n", strings.Repeat("\t", indent), name, strings.Repeat("\t", pad), fmt.Sprintf(format, args...))
}

func (p *printer) device(r *deviceReport) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, "hca_id:\t%s\n", r.Name)
	}
	p.line(1, "driver", "%s (%d)", r.Driver, r.DriverID)
	p.line(1, "file", "%s", orNone(r.File))
	p.line(1, "node_type", "%s", r.NodeType)
	if r.Protocol != "" {
		p.line(1, "protocol", "%s", r.Protocol)
	}
	p.line(1, "fw_ver", "%s", orNone(r.Firmware))
	p.line(1, "node_guid", "%s", r.NodeGUID)
	p.line(1, "sys_image_guid", "%s", r.SysImageGUID)
	if r.Error != "" {
		p.line(1, "phys_port_cnt", "%d", r.PortCount)
		p.line(1, "error", "%s", r.Error)
		p.end()
		return
	}
	if r.VendorID != nil {
		p.line(1, "vendor_id", "0x%04x", *r.VendorID)
		p.line(1, "vendor_part_id", "%d", *r.VendorPartID)
		p.line(1, "hw_ver", "0x%X", *r.HWVersion)
	}
	p.line(1, "phys_port_cnt", "%d", r.PortCount)
	if p.verbose {
		p.limits(r)
	}
	for i := range r.Ports {
		p.port(&r.Ports[i])
	}
	p.end()
}

func (p *printer) limits(r *deviceReport) {
	for _, l := range r.limits {
		p.line(1, l.name, l.format, l.value)
		if l.name == "device_cap_flags" {
			p.list(2, r.Capabilities)
		}
	}
	p.line(1, "atomic_cap", "%s", r.Atomic)
	if r.Vectors != nil {
		p.line(1, "num_comp_vectors", "%d", *r.Vectors)
	}
}

func (p *printer) port(r *portReport) {
	a := &r.attr
	p.line(2, "port", "%d", r.Port)
	p.line(3, "state", "%s (%d)", r.State, uint8(a.State))
	p.line(3, "max_mtu", "%d", r.MaxMTU)
	p.line(3, "active_mtu", "%d", r.ActiveMTU)
	p.line(3, "sm_lid", "%d", r.SMLID)
	p.line(3, "port_lid", "%d", r.LID)
	p.line(3, "port_lmc", "0x%02x", r.LMC)
	p.line(3, "link_layer", "%s", r.LinkLayer)
	p.line(3, "phys_state", "%s (%d)", r.PhysState, uint8(a.PhysState))
	p.line(3, "rate", "%g Gb/s (%dX of %g)", r.Gbps, a.Width, a.LaneGbps)
	p.line(3, "netdev", "%s", orNone(r.Netdev))
	if !p.verbose {
		return
	}
	p.line(3, "max_msg_sz", "%#x", r.MaxMsg)
	p.line(3, "port_cap_flags", "%#08x", uint32(a.Caps))
	p.list(4, r.Caps)
	p.line(3, "port_cap_flags2", "%#04x", a.Caps2)
	p.line(3, "max_vl_num", "%d", a.MaxVLs)
	p.line(3, "bad_pkey_cntr", "%#x", a.BadPKeys)
	p.line(3, "qkey_viol_cntr", "%#x", a.QKeyViolations)
	p.line(3, "sm_sl", "%d", a.SMSL)
	p.line(3, "pkey_tbl_len", "%d", r.PKeyTable)
	p.line(3, "gid_tbl_len", "%d", r.GIDTable)
	p.line(3, "subnet_timeout", "%d", a.SubnetTimeout)
	p.line(3, "init_type_reply", "%d", a.InitTypeReply)
	for _, k := range r.PKeys {
		p.line(3, fmt.Sprintf("P_Key[%3d]", k.Index), "%s", k.PKey)
	}
	for _, g := range r.GIDs {
		p.line(3, fmt.Sprintf("GID[%3d]", g.Index), "%s, %s%s", g.GID, g.Type, prefixed(", ", g.Netdev))
	}
}

// list writes words, one a line.
func (p *printer) list(indent int, words []string) {
	for _, w := range words {
		if p.err == nil {
			_, p.err = fmt.Fprintf(p.w, "%s%s\n", strings.Repeat("\t", indent+1), w)
		}
	}
}

func (p *printer) end() {
	if p.err == nil {
		_, p.err = fmt.Fprintln(p.w)
	}
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}
