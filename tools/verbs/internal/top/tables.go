package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// tables are those of a look; all of them also has what just exists.
func tables(l *Look, all bool) []*table {
	list := []*table{ports(l), processTable(l), cqTable(l), qpTable(l), cmidTable(l), srqTable(l), callTable(l)}
	if all {
		list = append(list, contextTable(l), pdTable(l), mrTable(l))
	}
	// A table of what seldom exists is there where it does.
	return slices.DeleteFunc(list, func(t *table) bool { return t.n == 0 })
}

// busiest orders by rates, the highest first.
func busiest(a, b *float64) int { return cmp.Compare(deref(b), deref(a)) }

// ports is the table of ports with what moves on them.
func ports(l *Look) *table {
	list := gather(l, func(d *Device) []*Port { return d.Ports }, func(a, b *Port) int { return 0 })
	return &table{
		columns: []column{{"DEVICE", true, 0}, {"PORT", false, 0}, {"STATE", true, 0}, {"NETDEV", true, 6}, {"OUT-PKT/s", false, 1}, {"IN-PKT/s", false, 1},
			{"OUT-MB/s", false, 3}, {"IN-MB/s", false, 3}, {"OTHER COUNTERS THAT MOVE", true, 2}},
		n: len(list),
		row: func(i int) []string {
			p := list[i].x
			hidden := make(map[string]bool)
			pick := func(names ...string) *Counter {
				for _, n := range names {
					if j := slices.IndexFunc(p.Counters, func(c *Counter) bool { return c.Name == n }); j >= 0 {
						hidden[n] = true
						return p.Counters[j]
					}
				}
				return &Counter{}
			}
			packets := func(names ...string) string { return rate(pick(names...).Rate) }
			// InfiniBand counts data in words of four bytes.
			megabytes := func(name string) string {
				r := pick(name).Rate
				if r == nil {
					return "-"
				}
				return strconv.FormatFloat(*r*4/1e6, 'f', 1, 64)
			}
			row := []string{
				list[i].Name, fmt.Sprint(p.Port), p.State, text(p.Netdev), packets("sent_pkts", "port_xmit_packets"), packets("rcvd_pkts", "port_rcv_packets"),
				megabytes("port_xmit_data"), megabytes("port_rcv_data"),
			}
			return append(row, strings.Join(moving(p, hidden), ", "))
		},
	}
}

// maxMoving is how many counters are named beside those that have a column.
const maxMoving = 6

// moving are the counters that moved, the fastest first.
func moving(p *Port, hidden map[string]bool) (all []string) {
	var moved []*Counter
	for _, c := range p.Counters {
		if deref(c.Rate) > 0 && !hidden[c.Name] {
			moved = append(moved, c)
		}
	}
	slices.SortStableFunc(moved, func(a, b *Counter) int { return busiest(a.Rate, b.Rate) })
	for _, c := range moved[:min(len(moved), maxMoving)] {
		all = append(all, c.Name+" "+rate(c.Rate))
	}
	return all
}

func processTable(l *Look) *table {
	list := slices.Clone(l.Processes)
	slices.SortStableFunc(list, func(a, b *Process) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(deref(b.SendRate)+deref(b.RecvRate), deref(a.SendRate)+deref(a.RecvRate)), busiest(a.EventRate, b.EventRate), cmp.Compare(b.QPs, a.QPs))
	})
	return &table{
		columns: []column{{"PROCESS", true, 0}, {"PID", false, 0}, {"DEVICES", true, 5}, {"CTX", false, 6}, {"PD", false, 6}, {"CQ", false, 4}, {"QP", false, 3}, {"MR", false, 5}, {"SRQ", false, 7},
			{"CM", false, 7}, {"MR-BYTES", false, 3}, {"SQ-PKT/s", false, 1}, {"RQ-PKT/s", false, 1}, {"EV/s", false, 2}, {"CQE/s", false, 2}},
		n: len(list),
		row: func(i int) []string {
			p := list[i]
			o := Owner{PID: p.PID, Process: p.Name, Kernel: p.Kernel}
			return []string{
				o.name(), o.pid(), strings.Join(p.Devices, ","), fmt.Sprint(p.Contexts), fmt.Sprint(p.PDs), fmt.Sprint(p.CQs), fmt.Sprint(p.QPs), fmt.Sprint(p.MRs), fmt.Sprint(p.SRQs),
				fmt.Sprint(p.CMIDs), bytesText(p.Bytes), rate(p.SendRate), rate(p.RecvRate), rate(p.EventRate), atLeast(p.CQERate, p.AtLeast),
			}
		},
	}
}

// fill is how full a ring is, from 0 to 1.
func (q *CQ) fill() float64 {
	if q.Occupied == nil || *q.Slots == 0 {
		return 0
	}
	return float64(*q.Occupied) / float64(*q.Slots)
}

func cqTable(l *Look) *table {
	list := gather(l, func(d *Device) []*CQ { return d.CQs }, func(a, b *CQ) int {
		return cmp.Or(busiest(a.ErrorRate, b.ErrorRate), cmp.Compare(b.fill(), a.fill()), busiest(a.CQERate, b.CQERate), busiest(a.EventRate, b.EventRate))
	})
	return &table{
		columns: []column{{"DEVICE", true, 0}, {"CQN", false, 0}, {"PROCESS", true, 0}, {"PID", false, 4}, {"DEPTH", false, 3}, {"OCC", false, 1}, {"%", false, 1}, {"HIGH", false, 2}, {"CQE/s", false, 1},
			{"EV/s", false, 1}, {"ERR", false, 1}, {"ARMED", true, 5}, {"PEND", true, 5}, {"WAKE", false, 2}, {"P99", false, 3}, {"VEC", false, 7}, {"USERS", false, 8}},
		n: len(list),
		row: func(i int) []string {
			q := list[i].x
			percent, wake, p99 := "-", "-", "-"
			if q.Occupied != nil {
				percent = fmt.Sprintf("%.0f", 100*q.fill())
			}
			if q.Wake != nil {
				wake, p99 = duration(q.Wake.AvgUsec), duration(q.Wake.P99Usec)
			}
			return []string{
				list[i].Name, fmt.Sprint(q.ID), q.name(), q.pid(), fmt.Sprint(q.Depth), number(q.Occupied), percent, number(q.HighWater), atLeast(q.CQERate, q.AtLeast), rate(q.EventRate), number(q.Errors),
				text(deref(q.Armed)), yes(q.Pending), wake, p99, number(q.Vector), fmt.Sprint(q.Users),
			}
		},
		notes: cqNotes(l, list),
	}
}

func qpTable(l *Look) *table {
	list := gather(l, func(d *Device) []*QP { return d.QPs }, func(a, b *QP) int {
		return cmp.Compare(deref(b.SendRate)+deref(b.RecvRate), deref(a.SendRate)+deref(a.RecvRate))
	})
	return &table{
		columns: []column{{"DEVICE", true, 0}, {"QPN", false, 0}, {"TYPE", true, 0}, {"STATE", true, 0}, {"PORT", false, 4}, {"REMOTE", false, 3}, {"PROCESS", true, 0}, {"PID", false, 2}, {"SQ-PKT/s", false, 1}, {"RQ-PKT/s", false, 1}},
		n:       len(list),
		row: func(i int) []string {
			q := list[i].x
			kind := q.Type
			if q.Subtype != "" {
				kind += "/" + q.Subtype
			}
			return []string{list[i].Name, fmt.Sprint(q.Num), kind, q.State, number(q.Port), number(q.Remote), q.name(), q.pid(), rate(q.SendRate), rate(q.RecvRate)}
		},
	}
}

func cmidTable(l *Look) *table {
	list := gather(l, func(d *Device) []*CMID { return d.CMIDs }, func(a, b *CMID) int { return 0 })
	return &table{
		columns: []column{{"DEVICE", true, 0}, {"CM-ID", false, 0}, {"STATE", true, 0}, {"PS", true, 4}, {"LOCAL", true, 1}, {"PEER", true, 1}, {"QPN", false, 3}, {"PROCESS", true, 0}, {"PID", false, 2}},
		n:       len(list),
		row: func(i int) []string {
			c := list[i].x
			return []string{list[i].Name, fmt.Sprint(c.ID), c.State, c.PortSpace, text(c.Local), text(c.Peer), number(c.QP), c.name(), c.pid()}
		},
	}
}

func srqTable(l *Look) *table {
	list := gather(l, func(d *Device) []*SRQ { return d.SRQs }, func(a, b *SRQ) int { return 0 })
	return &table{
		columns: []column{{"DEVICE", true, 0}, {"SRQN", false, 0}, {"TYPE", true, 3}, {"PDN", false, 4}, {"PROCESS", true, 0}, {"PID", false, 2}, {"QPNS", true, 1}},
		n:       len(list),
		row: func(i int) []string {
			s := list[i].x
			var qps []string
			for _, r := range s.QPs {
				if r[0] == r[1] {
					qps = append(qps, fmt.Sprint(r[0]))
				} else {
					qps = append(qps, fmt.Sprintf("%d-%d", r[0], r[1]))
				}
			}
			return []string{list[i].Name, fmt.Sprint(s.ID), s.Type, fmt.Sprint(s.PD), s.name(), s.pid(), text(strings.Join(qps, ","))}
		},
	}
}

func callTable(l *Look) *table {
	list := slices.Clone(l.Calls)
	slices.SortStableFunc(list, func(a, b *Call) int { return cmp.Or(busiest(a.Rate, b.Rate), cmp.Compare(b.Count, a.Count)) })
	return &table{
		columns: []column{{"PROCESS", true, 0}, {"PID", false, 3}, {"VIA", true, 4}, {"METHOD", true, 0}, {"CALLS/s", false, 0}, {"CALLS", false, 1}, {"FAILED", false, 1}, {"AVG", false, 2}, {"MAX", false, 2}},
		n:       len(list),
		row: func(i int) []string {
			c := list[i]
			return []string{c.Process, fmt.Sprint(c.PID), c.Via, c.Name, rate(c.Rate), fmt.Sprint(c.Count), fmt.Sprint(c.Failed), duration(c.AvgUsec), duration(c.MaxUsec)}
		},
	}
}

func contextTable(l *Look) *table {
	list := gather(l, func(d *Device) []*Context { return d.Contexts }, func(a, b *Context) int { return 0 })
	return &table{
		columns: []column{{"DEVICE", true, 0}, {"CTXN", false, 0}, {"PROCESS", true, 0}, {"PID", false, 1}},
		n:       len(list),
		row: func(i int) []string {
			x := list[i].x
			return []string{list[i].Name, fmt.Sprint(x.ID), x.name(), x.pid()}
		},
	}
}

func pdTable(l *Look) *table {
	list := gather(l, func(d *Device) []*PD { return d.PDs }, func(a, b *PD) int { return 0 })
	return &table{
		columns: []column{{"DEVICE", true, 0}, {"PDN", false, 0}, {"CTXN", false, 2}, {"USERS", false, 2}, {"PROCESS", true, 0}, {"PID", false, 1}},
		n:       len(list),
		row: func(i int) []string {
			x := list[i].x
			return []string{list[i].Name, fmt.Sprint(x.ID), number(x.Context), fmt.Sprint(x.Users), x.name(), x.pid()}
		},
	}
}

func mrTable(l *Look) *table {
	list := gather(l, func(d *Device) []*MR { return d.MRs }, func(a, b *MR) int { return cmp.Compare(b.Length, a.Length) })
	return &table{
		columns: []column{{"DEVICE", true, 0}, {"MRN", false, 0}, {"PDN", false, 3}, {"BYTES", false, 0}, {"LKEY", false, 2}, {"RKEY", false, 2}, {"PROCESS", true, 0}, {"PID", false, 1}},
		n:       len(list),
		row: func(i int) []string {
			x := list[i].x
			return []string{list[i].Name, fmt.Sprint(x.ID), number(x.PD), fmt.Sprint(x.Length), text(deref(x.LKey)), text(deref(x.RKey)), x.name(), x.pid()}
		},
	}
}
