package nldev

import (
	"errors"
	"io/fs"
	"slices"
	"syscall"
	"testing"
)

// guestConn dials the kernel of this system, which must have an RDMA device.
func guestConn(t *testing.T) (*Conn, []Link) {
	t.Helper()
	const skip = "declared skip: no RDMA device here; run in the guest: rxevm exec"
	c, err := Dial()
	if errors.Is(err, ErrNoRDMA) || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrPermission) {
		t.Skip(skip)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	links, err := c.Links()
	if err != nil {
		t.Fatal(err)
	}
	if len(links) == 0 {
		t.Skip(skip)
	}
	return c, links
}

func TestGuestNldev(t *testing.T) {
	c, links := guestConn(t)
	for _, l := range links {
		t.Logf("%+v", l)
		if l.NodeType == 0 || l.NodeGUID == 0 || l.Protocol == "" || l.Ports == 0 {
			t.Errorf("something is missing: %+v", l)
		}
		ports, err := c.Ports(l.Index)
		if err != nil || len(ports) != int(l.Ports) {
			t.Errorf("%s: ports %+v, %v", l.Name, ports, err)
		}
		for _, p := range ports {
			t.Logf("%+v", p)
			if p.Device != l.Name || p.State == 0 || p.Netdev == "" {
				t.Errorf("something is missing: %+v", p)
			}
		}
		d, err := c.Chardev(l.Index, "uverbs")
		t.Logf("%+v", d)
		if err != nil || d.Name == "" || d.Dev == 0 || d.DriverID == 0 || d.ABI == 0 {
			t.Errorf("%s: %+v, %v", l.Name, d, err)
		}
		counts, err := c.ResourceCounts(l.Index)
		t.Log(counts)
		for _, kind := range []string{"pd", "cq", "qp", "mr", "ctx", "cm_id"} {
			if _, ok := counts[kind]; !ok || err != nil {
				t.Errorf("%s: %s is not counted: %v, %v", l.Name, kind, counts, err)
			}
		}
		guestObjects(t, c, l, counts)
		counters, err := c.Counters(l.Index, 1)
		t.Log(counters)
		if _, ok := counters["sent_pkts"]; !ok || err != nil {
			t.Errorf("%s: sent packets are not counted: %v, %v", l.Name, counters, err)
		}
	}
	s, err := c.System()
	t.Logf("%+v, %v", s, err)
	if err != nil || !s.NetnsShared {
		t.Errorf("a freshly booted system shares devices among network namespaces: %+v, %v", s, err)
	}
}

// guestObjects lists what the kernel itself has of each device, and that counts
// and lists say the same of kinds that nobody makes meanwhile.
func guestObjects(t *testing.T, c *Conn, l Link, counts ResourceCounts) {
	t.Helper()
	pds, err := c.PDs(l.Index)
	if err != nil || len(pds) == 0 || pds[0].Kernel == "" {
		t.Errorf("%s: protection domains %+v, %v: the kernel has one of its own", l.Name, pds, err)
	}
	cqs, err := c.CQs(l.Index)
	if err != nil || len(cqs) == 0 || cqs[0].Kernel == "" || cqs[0].Depth == 0 || uint64(len(cqs)) != counts["cq"] {
		t.Errorf("%s: completion queues %+v, %v, counted %d", l.Name, cqs, err, counts["cq"])
	}
	qps, err := c.QPs(l.Index)
	if err != nil || uint64(len(qps)) != counts["qp"] || !slices.ContainsFunc(qps, func(q QP) bool { return q.Type == QPGSI && q.Num == 1 }) {
		t.Errorf("%s: queue pairs %+v, %v, counted %d", l.Name, qps, err, counts["qp"])
	}
	mrs, err := c.MRs(l.Index)
	if err != nil || uint64(len(mrs)) != counts["mr"] {
		t.Errorf("%s: regions %+v, %v, counted %d", l.Name, mrs, err, counts["mr"])
	}
	ids, err := c.CMIDs(l.Index)
	if err != nil || uint64(len(ids)) != counts["cm_id"] {
		t.Errorf("%s: identifiers %+v, %v, counted %d", l.Name, ids, err, counts["cm_id"])
	}
	_, err = c.Contexts(l.Index)
	_, err2 := c.SRQs(l.Index)
	// Linux 5.10 lists neither, and refuses to.
	for _, err := range []error{err, err2} {
		if err != nil && !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", l.Name, err)
		}
	}
}

func TestGuestNewAndDelLink(t *testing.T) {
	c, links := guestConn(t)
	const name = "rxe_on_lo"
	err := c.NewLink(name, "rxe", "lo")
	if errors.Is(err, syscall.EPERM) {
		t.Skip("declared skip: making a device needs CAP_NET_ADMIN; run in the guest: rxevm exec")
	}
	if err != nil {
		t.Fatal(err)
	}
	after, err := c.Links()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(after, func(l Link) bool { return l.Name == name })
	if i < 0 || len(after) != len(links)+1 {
		t.Fatalf("%q is not among %+v", name, after)
	}
	if err := c.NewLink(name, "rxe", "lo"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("the same name again: %v", err)
	}
	ports, err := c.Ports(after[i].Index)
	if err != nil || len(ports) != 1 || ports[0].Netdev != "lo" {
		t.Errorf("%+v, %v", ports, err)
	}
	if err := c.DelLink(after[i].Index); err != nil {
		t.Fatal(err)
	}
	if err := c.DelLink(after[i].Index); !errors.Is(err, syscall.ENODEV) && !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a second time: %v", err)
	}
	if now, err := c.Links(); err != nil || len(now) != len(links) {
		t.Errorf("%+v, %v", now, err)
	}
	if err := c.NewLink("rxe_nowhere", "rxe", "nosuchdev0"); err == nil {
		t.Error("a link on a network device that does not exist")
	}
	if err := c.NewLink("what0", "nosuchtype", "lo"); err == nil {
		t.Error("a link of a type that does not exist")
	}
	if _, err := c.Chardev(1<<30, "uverbs"); err == nil {
		t.Error("a character device of a device that does not exist")
	}
}
