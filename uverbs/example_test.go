package uverbs_test

import (
	"errors"
	"fmt"
	"log"
	"net/netip"

	"github.com/goverbs/goverbs/uverbs"
)

func ExampleDevices() {
	all, err := uverbs.Devices()
	if errors.Is(err, uverbs.ErrNoDevices) {
		fmt.Println("this machine has no RDMA")
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range all {
		fmt.Println(d.Name, d.Driver, d.Err)
	}
}

func ExampleOpenAddr() {
	dev, err := uverbs.OpenAddr(netip.MustParseAddr("10.0.0.1"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	fmt.Println(dev.Name(), dev.Attr().MaxQP)
}

// Requests are staged, and handed over together by one Flush.
func ExampleSendQueue() {
	var qp *uverbs.QP    // connected
	var mr *uverbs.MR    // registered
	var peer uverbs.Peer // from Handshake

	sq := qp.SendQueue()
	sq.Write(1, peer.Regions[0].At(0), mr.Span(4096, 8192), uverbs.Unsignaled)
	sq.SendInline(2, []byte("done"), uverbs.Fence)
	if err := sq.Flush(); err != nil {
		log.Fatal(err) // none of the two reached the device
	}
}
