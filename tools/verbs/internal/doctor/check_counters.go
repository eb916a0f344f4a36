package doctor

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// A counterRule says when a counter of a port tells of trouble.
type counterRule struct {
	names    []string // what drivers call it
	least    uint64   // fewer say nothing
	of       []string // the counters that it is seen against; none counts by itself
	perMille uint64   // how many of a thousand of these say something
	severity Severity
	what     string // of several of them
	mend     string
}

// The packets that a port has sent and received, as drivers count them.
var (
	sentPackets     = []string{"sent_pkts", "port_xmit_packets"}
	receivedPackets = []string{"rcvd_pkts", "port_rcv_packets"}
)

const (
	lossMend = "look for drops on the way: ethtool -S of the network device, and the switch's counters; RoCE needs PFC or ECN on every hop, and the same on both sides"
	rnrMend  = "post more receives, and before the peer may send; RecvDepth in QPOptions, or the depth of the SRQ, is how many fit"
)

var counterRules = []counterRule{
	{
		names: []string{"retry_exceeded_err", "req_transport_retries_exceeded"}, least: 1, severity: Note,
		what: "requests were given up, as the peer did not answer any of their retries: it had ended, or the way to it is broken",
		mend: "verbs pingpong PEER tells whether the way works now; if not: the address of the GID, the MTU, a firewall for UDP port 4791",
	}, {
		names: []string{"retry_rnr_exceeded_err"}, least: 1, severity: Note,
		what: "requests were given up, as the peer had no receive posted whenever they were tried",
		mend: rnrMend,
	}, {
		names: []string{"rcvd_seq_err", "packet_seq_err"}, least: 100, of: sentPackets, perMille: 1, severity: Warning,
		what: "packets that were sent did not arrive, and were sent again",
		mend: lossMend,
	}, {
		names: []string{"out_of_seq_request", "out_of_sequence"}, least: 100, of: receivedPackets, perMille: 1, severity: Warning,
		what: "packets came behind one that was lost, and were asked for again",
		mend: lossMend,
	}, {
		names: []string{"local_ack_timeout_err"}, least: 100, of: sentPackets, perMille: 1, severity: Warning,
		what: "requests were not answered in time, and were sent again",
		mend: lossMend,
	}, {
		names: []string{"rcvd_rnr_err", "rnr_nak_retry_err"}, least: 100, of: sentPackets, perMille: 10, severity: Note,
		what: "requests met a peer without a receive posted, and had to wait",
		mend: rnrMend + "; it is the peer that has to",
	}, {
		names: []string{"send_rnr_err", "out_of_buffer"}, least: 100, of: receivedPackets, perMille: 10, severity: Note,
		what: "messages came while no receive was posted, and had to wait or were lost",
		mend: rnrMend,
	}, {
		names: []string{"rx_icrc_encapsulated"}, least: 10, severity: Warning,
		what: "packets came with a wrong checksum: something on the way changes or damages them",
		mend: "look for a switch or tunnel that rewrites RoCE packets, and for a bad cable: ethtool -S of the network device",
	}, {
		names: []string{"symbol_error", "symbol_error_counter"}, least: 100, severity: Note,
		what: "symbols were received with errors: while the link came up, or since the cable or the transceiver is bad",
		mend: "mlxlink -d DEVICE -c shows the cable's state; if the number grows clean or change it",
	}, {
		names: []string{"link_downed"}, least: 10, severity: Note,
		what: "the link goes down again and again",
		mend: "journalctl -k | grep -i link shows when; look at the cable, the switch's port, and who sets the network device down",
	},
}

// checkCounters reads what the ports have counted.
var checkCounters = Check{
	Name:  "counters",
	About: "the counters of each port that tell of lost packets and unready receivers",
	After: []string{"devices", "namespace"},
	Run: func(ctx context.Context, n *Node) ([]Finding, error) {
		var found []Finding
		for _, d := range n.devices() {
			for _, p := range d.Ports {
				if ctx.Err() != nil {
					return found, unseen(d.Object(&p), context.Cause(ctx))
				}
				counted, from := n.counters(&d, &p)
				if len(counted) == 0 {
					n.saw("%s: no counters", d.Object(&p))
					continue
				}
				for _, r := range counterRules {
					if f, ok := r.apply(n, &d, &p, counted, from); ok {
						found = append(found, f)
					}
				}
			}
		}
		return found, nil
	},
}

// counters are those of a port, by name, and where each is.
func (n *Node) counters(d *Device, p *Port) (counted map[string]uint64, from map[string]string) {
	counted, from = make(map[string]uint64), make(map[string]string)
	if dir := d.PortDir(p); dir != "" {
		for _, sub := range []string{"/counters", "/hw_counters"} {
			names, _ := n.names(dir + sub)
			for _, name := range names {
				s, err := n.line(dir + sub + "/" + name)
				if err != nil {
					continue
				}
				if v, err := strconv.ParseUint(s, 10, 64); err == nil {
					counted[name], from[name] = v, "/"+dir+sub+"/"+name
				}
			}
		}
	}
	return counted, from
}

// pick is the first of several counters that the port has.
func pick(counted map[string]uint64, names []string) (name string, v uint64) {
	for _, name := range names {
		if v, ok := counted[name]; ok {
			return name, v
		}
	}
	return "", 0
}

// apply looks at one kind of trouble.
func (r *counterRule) apply(n *Node, d *Device, p *Port, counted map[string]uint64, from map[string]string) (Finding, bool) {
	name, v := pick(counted, r.names)
	if name == "" {
		return Finding{}, false
	}
	against, total := pick(counted, r.of)
	n.saw("%s: %s %d", d.Object(p), name, v)
	if v < r.least || len(r.of) > 0 && (against == "" || v < total/1000*r.perMille) {
		return Finding{}, false
	}
	seen := fmt.Sprintf("%s is %d", from[name], v)
	if against != "" {
		seen += fmt.Sprintf(", %s %d", against, total)
	}
	return Finding{
		Severity: r.severity, Object: d.Object(p),
		What: fmt.Sprintf("%s; %d so far", r.what, v), Seen: seen, Mend: strings.TrimSpace(r.mend),
	}, true
}
