package model

// Objects counts what all programs together hold on the device, by kind: "context",
// "PD", "MR", "MW", "CQ", "QP", "SRQ", "AH", "UAR" and "channel", a completion channel
// that is open. Kinds of which there are none are left out, so it is empty when nobody has
// anything. It is what "rdma resource" tells on a machine: a test compares it to what
// it was before, to find leaks.
func (d *Device) Objects() map[string]int {
	d.m.enter()
	defer d.m.leave()
	counts := make(map[string]int)
	for _, f := range d.files {
		if f.ctx == nil {
			continue
		}
		counts["context"]++
		for _, o := range f.ctx.objects {
			counts[kinds[o.rank()]]++
		}
		for _, e := range f.queues {
			if e.completion {
				counts["channel"]++
			}
		}
	}
	return counts
}

// kinds are the names of objects by rank. A memory region is an mkey there.
var kinds = [ranks]string{
	rankQP: "QP", rankMW: "MW", rankSRQ: "SRQ", rankCQ: "CQ", rankAH: "AH", rankMR: "MR", rankPD: "PD", rankUAR: "UAR",
}
