package uverbs_test

import (
	"fmt"
	"log"

	"github.com/goverbs/goverbs/uverbs"
)

// Memory next to the device, wherever that is.
func ExampleDevice_NUMANode() {
	dev, err := uverbs.Open("rxe0", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	mem, err := uverbs.Alloc(1<<20, &uverbs.MemoryOptions{Node: dev.NUMANode()})
	if err != nil {
		log.Fatal(err)
	}
	defer mem.Close()
	clear(mem.Bytes())
	nodes, err := mem.Nodes()
	if err != nil {
		log.Fatal(err)
	}
	for node, n := range nodes {
		fmt.Printf("%d bytes are on node %d\n", n, node)
	}
}

// A buffer that peers may fill, until the program takes that right back.
func ExampleMR_Reregister() {
	dev, err := uverbs.Open("rxe0", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	pd, err := dev.NewPD()
	if err != nil {
		log.Fatal(err)
	}
	mem, err := uverbs.Alloc(1<<20, nil)
	if err != nil {
		log.Fatal(err)
	}
	mr, err := pd.Register(mem.Bytes(), uverbs.LocalWrite|uverbs.RemoteWrite)
	if err != nil {
		log.Fatal(err)
	}
	// Peers write, and say that they have finished.
	if err := mr.Reregister(uverbs.ChangeAccess(uverbs.LocalWrite)); err != nil {
		log.Fatal(err) // ErrNotSupported: close the region and register anew
	}
}
