package fakekernel

import (
	"bytes"
	"maps"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

func (p *program) rereg(q abi.UverbsReregMR) (abi.UverbsReregMRResp, error) {
	resp := new(abi.UverbsReregMRResp)
	err := p.write(abi.IB_USER_VERBS_CMD_REREG_MR, q.Bytes(), resp.Bytes())
	return *resp, err
}

func TestReregister(t *testing.T) {
	k, p := one(t, Device{Rereg: 7})
	pd, other := p.allocPD(), p.allocPD()
	b, c := pages(pageSize), pages(2*pageSize)
	m := p.reg(pd, b, localWrite)
	for what, test := range map[string]struct {
		q    abi.UverbsReregMR
		want syscall.Errno
	}{
		"nothing":              {abi.UverbsReregMR{MRHandle: m.MRHandle}, syscall.EINVAL},
		"an unknown flag":      {abi.UverbsReregMR{MRHandle: m.MRHandle, Flags: 8}, syscall.EOPNOTSUPP},
		"no such MR":           {abi.UverbsReregMR{MRHandle: 99, Flags: reregAccess}, syscall.ENOENT},
		"a PD as MR":           {abi.UverbsReregMR{MRHandle: pd, Flags: reregAccess}, syscall.ENOENT},
		"no such PD":           {abi.UverbsReregMR{MRHandle: m.MRHandle, Flags: reregPD, PDHandle: 99}, syscall.ENOENT},
		"remote without local": {abi.UverbsReregMR{MRHandle: m.MRHandle, Flags: reregAccess, AccessFlags: remoteWrite}, syscall.EINVAL},
		"another page offset":  {abi.UverbsReregMR{MRHandle: m.MRHandle, Flags: reregTrans, Start: addressOf(c), Length: 1, HCAVA: addressOf(c) + 1}, syscall.EINVAL},
		"no length":            {abi.UverbsReregMR{MRHandle: m.MRHandle, Flags: reregTrans, Start: addressOf(c), HCAVA: addressOf(c)}, syscall.EINVAL},
		"not mapped":           {abi.UverbsReregMR{MRHandle: m.MRHandle, Flags: reregTrans, Start: 4096, HCAVA: 4096, Length: 1}, syscall.EFAULT},
	} {
		_, err := p.rereg(test.q)
		wantErr(t, what, err, test.want)
	}
	r, err := p.rereg(abi.UverbsReregMR{MRHandle: m.MRHandle, Flags: reregPD | reregAccess, PDHandle: other, AccessFlags: localWrite | remoteRead})
	if err != nil || r.LKey != m.LKey || r.RKey != m.LKey {
		t.Errorf("PD and access: %+v, %v; the key was %#x", r, err, m.LKey)
	}
	p.must(p.destroy(abi.UVERBS_OBJECT_PD, pd))
	wantErr(t, "the new PD", p.destroy(abi.UVERBS_OBJECT_PD, other), syscall.EBUSY)
	r, err = p.rereg(abi.UverbsReregMR{MRHandle: m.MRHandle, Flags: reregTrans, Start: addressOf(c), Length: 2 * pageSize, HCAVA: addressOf(c)})
	if err != nil || r.LKey == m.LKey || r.LKey>>8 != m.LKey>>8 {
		t.Errorf("memory: %+v, %v; the key was %#x", r, err, m.LKey)
	}
	if leaks := strings.Join(k.Leaks(), "\n"); !strings.Contains(leaks, "2 pages are pinned") {
		t.Errorf("the old memory is pinned too:\n%s", leaks)
	}
	p.must(p.destroy(abi.UVERBS_OBJECT_MR, m.MRHandle))
	p.must(p.destroy(abi.UVERBS_OBJECT_PD, other))
	if v := k.Violations(); len(v) != 0 {
		t.Errorf("violations %q", v)
	}
	// Rights to write to what was pinned for reading.
	pd = p.allocPD()
	m = p.reg(pd, b, 0)
	_, err = p.rereg(abi.UverbsReregMR{MRHandle: m.MRHandle, Flags: reregAccess, AccessFlags: localWrite})
	p.must(err)
	if v := k.Violations(); len(v) != 1 || !strings.Contains(v[0], "pinned for reading") {
		t.Errorf("violations %q", v)
	}
	runtime.KeepAlive(b)
	runtime.KeepAlive(c)

	for _, test := range []struct {
		can, flags uint32
	}{{0, reregAccess}, {0, 0}, {reregPD | reregAccess, reregTrans}, {reregPD | reregAccess, reregTrans | reregAccess}} {
		_, p := one(t, Device{Rereg: test.can})
		m := p.reg(p.allocPD(), b, localWrite)
		_, err := p.rereg(abi.UverbsReregMR{MRHandle: m.MRHandle, Flags: test.flags, Start: addressOf(b), Length: 1, HCAVA: addressOf(b)})
		wantErr(t, "a driver that cannot", err, syscall.EOPNOTSUPP)
	}
}

func TestDMABuf(t *testing.T) {
	k, p := one(t, Device{DMABuf: true})
	pd := p.allocPD()
	fd := k.NewDMABuf(make([]byte, 2*pageSize))
	if second := k.NewDMABuf(make([]byte, 1)); second == fd {
		t.Fatal("two dma-bufs with one descriptor")
	}
	e := p.asyncEvents()
	reg := func(p *program, pd uint32, fd int, offset, length, iova uint64, access uint32) (handle uint64, lkey, rkey []byte, err error) {
		lkey, rkey = make([]byte, 4), make([]byte, 4)
		err = p.call(abi.UVERBS_OBJECT_MR, abi.UVERBS_METHOD_REG_DMABUF_MR,
			made(abi.UVERBS_ATTR_REG_DMABUF_MR_HANDLE, &handle), ref(abi.UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, uint64(pd)),
			in64(abi.UVERBS_ATTR_REG_DMABUF_MR_OFFSET, offset), in64(abi.UVERBS_ATTR_REG_DMABUF_MR_LENGTH, length),
			in64(abi.UVERBS_ATTR_REG_DMABUF_MR_IOVA, iova), in32(abi.UVERBS_ATTR_REG_DMABUF_MR_FD, uint32(fd)),
			in32(abi.UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, access),
			out(abi.UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, lkey), out(abi.UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, rkey))
		return
	}
	for what, test := range map[string]struct {
		pd                   uint32
		fd                   int
		offset, length, iova uint64
		access               uint32
		want                 syscall.Errno
	}{
		"no such PD":           {99, fd, 0, 1, 0, 0, syscall.ENOENT},
		"another page offset":  {pd, fd, 1, 1, 0, 0, syscall.EINVAL},
		"an unknown right":     {pd, fd, 0, 1, 0, mwBind, syscall.EINVAL},
		"remote without local": {pd, fd, 0, 1, 0, remoteWrite, syscall.EINVAL},
		"not open":             {pd, 1 << 21, 0, 1, 0, 0, syscall.EBADF},
		"negative":             {pd, -1, 0, 1, 0, 0, syscall.EBADF},
		"no dma-buf":           {pd, e.FD(), 0, 1, 0, 0, syscall.EINVAL},
		"no length":            {pd, fd, 0, 0, 0, 0, syscall.EINVAL},
		"too long":             {pd, fd, pageSize, pageSize + 1, 0, 0, syscall.EINVAL},
		"offset too large":     {pd, fd, 3 * pageSize, 1, 0, 0, syscall.EINVAL},
		"iova at the end":      {pd, fd, 0, pageSize, ^uint64(0) &^ (pageSize - 1), 0, syscall.EINVAL},
	} {
		_, _, _, err := reg(p, test.pd, test.fd, test.offset, test.length, test.iova, test.access)
		wantErr(t, what, err, test.want)
	}
	h, lkey, rkey, err := reg(p, pd, fd, pageSize, pageSize, 0, localWrite|remoteRead|relaxedOrdering)
	if err != nil || !bytes.Equal(lkey, rkey) || ne.Uint32(lkey) == 0 {
		t.Fatalf("keys %x and %x, %v", lkey, rkey, err)
	}
	_, local, none, err := reg(p, pd, fd, 0, pageSize, 0, localWrite)
	if err != nil || ne.Uint32(local) == 0 || ne.Uint32(none) != 0 {
		t.Errorf("without remote rights: keys %x and %x, %v", local, none, err)
	}
	k.CloseDMABuf(fd)
	if _, _, _, err := reg(p, pd, fd, 0, pageSize, 0, 0); err != syscall.EBADF {
		t.Errorf("closed: %v", err)
	}
	if leaks := strings.Join(k.Leaks(), "\n"); strings.Contains(leaks, "pinned") {
		t.Errorf("pages of a dma-buf are pinned:\n%s", leaks)
	}
	p.must(p.destroy(abi.UVERBS_OBJECT_MR, uint32(h)))

	_, p = one(t, Device{})
	_, _, _, err = reg(p, p.allocPD(), fd, 0, 1, 0, 0)
	wantErr(t, "a driver that cannot", err, syscall.EOPNOTSUPP)
	_, p = one(t, Device{DMABuf: true, Lacks: []Method{{abi.UVERBS_OBJECT_MR, abi.UVERBS_METHOD_REG_DMABUF_MR}}})
	_, _, _, err = reg(p, p.allocPD(), fd, 0, 1, 0, 0)
	wantErr(t, "an old kernel", err, syscall.EPROTONOSUPPORT)
}

func TestNodes(t *testing.T) {
	k := New()
	page := kernel.Host().PageSize()
	alloc := func(n int, opts kernel.AllocOptions) *kernel.Mapping {
		t.Helper()
		m, err := k.Alloc(n, opts)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	on := func(m *kernel.Mapping, want map[int]int) {
		t.Helper()
		if got, err := k.Nodes(m); err != nil || !maps.Equal(got, want) {
			t.Errorf("bytes by node: %v, %v; want %v", got, err, want)
		}
	}
	if _, err := k.Alloc(1, kernel.AllocOptions{Placed: true}); err != syscall.ENOSYS {
		t.Errorf("without nodes: %v", err)
	}
	early := alloc(1, kernel.AllocOptions{})
	if _, err := k.Nodes(early); err != syscall.ENOSYS {
		t.Errorf("without nodes: %v", err)
	}
	k.SetNodes(map[int]int{0: 2 * page, 3: 3 * page})
	if _, err := k.Alloc(1, kernel.AllocOptions{Placed: true, Node: 1}); err != syscall.EINVAL {
		t.Errorf("no such node: %v", err)
	}
	if _, err := k.Nodes(kernel.NewMapping(nil, nil, nil)); err != syscall.EINVAL {
		t.Errorf("a mapping from elsewhere: %v", err)
	}
	placed := alloc(2*page, kernel.AllocOptions{Placed: true, Node: 3})
	on(placed, map[int]int{3: 2 * page})
	spilled := alloc(2*page, kernel.AllocOptions{Placed: true, Node: 3})
	on(spilled, map[int]int{0: page, 3: page})
	anywhere := alloc(3*page, kernel.AllocOptions{})
	on(anywhere, map[int]int{0: page, 3: 2 * page})
	for _, m := range []*kernel.Mapping{placed, spilled, anywhere, early} {
		if err := m.Unmap(); err != nil {
			t.Error(err)
		}
	}
	if k.FreeOnNode(0) != 2*page || k.FreeOnNode(3) != 3*page {
		t.Errorf("%d and %d bytes are free at the end", k.FreeOnNode(0), k.FreeOnNode(3))
	}
	if l := k.Leaks(); len(l) != 0 {
		t.Errorf("leaks %q", l)
	}
}
