package uverbs_test

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/uverbs"
)

// deviceFacts is what is known to differ between devices by nature, so that each test
// says what to expect of each, exactly.
type deviceFacts struct {
	driver uverbs.Driver
	// vendor is the device's own code for failures, by status, where it gives one.
	// It goes with the causes that the tests have; see wc.
	vendor map[uverbs.Status]uint32
	// shortRecv and shortRecvPeer are how a receive that is too small for its
	// message ends, and the send of that message.
	shortRecv, shortRecvPeer uverbs.Status
	// ucKeepsShort: on UC such a receive waits for the next message; else it ends
	// as shortRecv and fails its queue pair.
	ucKeepsShort bool
	// ucInvalidates: UC has SendInvalidate and LocalInvalidate.
	ucInvalidates bool
	// wholeWindow: through a window peers use the whole region.
	wholeWindow bool
	// armSeesOld: arming a queue that is not empty raises an event at once.
	armSeesOld bool
	// moderates: completion events can be held back.
	moderates bool
	// ownHeader: a datagram's header is the address handle's, hop limit and flow
	// label too; else they come from the kernel's routes, and flow labels get lost.
	ownHeader bool
	// copiesAH: what an address handle says is in the requests; else they name it,
	// and fail when it is gone.
	copiesAH bool
	// changesMemory: the memory of a region can be changed.
	changesMemory bool
	// resizesSRQ: a shared receive queue can be resized.
	resizesSRQ bool
}

var (
	softRoCE = deviceFacts{
		driver:        uverbs.DriverRXE,
		shortRecv:     cq.StatusLocalQPOperation,
		shortRecvPeer: cq.StatusRemoteOperation,
		wholeWindow:   true,
		resizesSRQ:    true,
	}
	connectX = deviceFacts{
		driver: uverbs.DriverMlx5,
		vendor: map[uverbs.Status]uint32{
			cq.StatusLocalLength:       0xd4,
			cq.StatusLocalProtection:   0x51, // of no region, where a send reads
			uverbs.StatusFlushed:       0xf9,
			cq.StatusRemoteInvalidReq:  0x8a,
			uverbs.StatusRemoteAccess:  0x88,
			cq.StatusRemoteOperation:   0x89,
			uverbs.StatusRetryExceeded: 0x81,
			cq.StatusRNRRetryExceeded:  0x87,
			uverbs.StatusSuccess:       0,
		},
		shortRecv:     cq.StatusLocalLength,
		shortRecvPeer: cq.StatusRemoteInvalidReq,
		ucKeepsShort:  true,
		ucInvalidates: true,
		armSeesOld:    true,
		moderates:     true,
		ownHeader:     true,
		copiesAH:      true,
		changesMemory: true,
	}
)

// factsOf are those of a device.
func factsOf(t testing.TB, d *uverbs.Device) *deviceFacts {
	t.Helper()
	for _, f := range []*deviceFacts{&softRoCE, &connectX} {
		if d.Info().Driver == f.driver {
			return f
		}
	}
	t.Skipf("declared skip: %v is neither soft-RoCE nor a ConnectX, whose behaviour is known here", d.Info().Driver)
	return nil
}

// onSoftRoCE skips a test that is about soft-RoCE itself.
func onSoftRoCE(t testing.TB, d *uverbs.Device, why string) {
	t.Helper()
	if f := factsOf(t, d); f != &softRoCE {
		t.Skipf("declared skip: %v, not soft-RoCE: %s", f.driver, why)
	}
}

// wc is a completion as the device makes it: with its own code for the failure.
func (f *deviceFacts) wc(w uverbs.WC) uverbs.WC {
	w.VendorErr = f.vendor[w.Status]
	return w
}

// kernelFacts is what is known to differ between soft-RoCE's kernels, and how the
// ConnectX does.
type kernelFacts struct {
	series string
	// staleKey is how a send ends whose local memory is registered no more.
	staleKey cq.Status
	// wrongKey is how a write ends whose rkey is wrong.
	wrongKey cq.Status
	// deaf: a queue pair that has failed by itself does not look at its send
	// queue any more; what is posted then ends with Drain, Shutdown, or when
	// the program takes it to ERR or RESET.
	deaf bool
	// hasty: the responder's RNR timer is not waited for, and the failure that
	// comes of it is faster than a program is.
	hasty bool
	// dmabuf is what the kernel says to the registration of a dma-buf, and
	// dmabufSays a part of the explanation.
	dmabuf     syscall.Errno
	dmabufSays string
}

// kernelFactsOf are those of the kernel that the device is of.
func kernelFactsOf(t testing.TB, d *uverbs.Device) kernelFacts {
	t.Helper()
	if factsOf(t, d) == &connectX {
		// The kernel in software has no dma-bufs.
		return kernelFacts{"ConnectX", cq.StatusLocalProtection, uverbs.StatusRemoteAccess, false, false, syscall.EPROTONOSUPPORT, "5.12"}
	}
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []kernelFacts{
		{"5.10", cq.StatusLocalProtection, uverbs.StatusRetryExceeded, true, true, syscall.EPROTONOSUPPORT, "5.12"},
		{"6.1", cq.StatusLocalQPOperation, uverbs.StatusRemoteAccess, false, false, syscall.EOPNOTSUPP, "driver rxe"},
		{"6.12", uverbs.StatusFlushed, uverbs.StatusRemoteAccess, false, false, syscall.EOPNOTSUPP, "driver rxe"},
	} {
		if strings.HasPrefix(string(release), f.series+".") {
			return f
		}
	}
	t.Skipf("declared skip: Linux %s is not one of the guest's kernels, whose errors are known here", release)
	return kernelFacts{}
}
