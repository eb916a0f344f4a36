package nldev_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/goverbs/goverbs/uverbs/nldev"
)

// List the devices and the state of their ports.
func ExampleConn_Links() {
	c, err := nldev.Dial()
	if errors.Is(err, nldev.ErrNoRDMA) || errors.Is(err, errors.ErrUnsupported) {
		fmt.Println("no RDMA here")
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	links, err := c.Links()
	if err != nil {
		log.Fatal(err)
	}
	for _, l := range links {
		ports, err := c.Ports(l.Index)
		if err != nil {
			log.Fatal(err)
		}
		for _, p := range ports {
			fmt.Printf("%s/%d state %v netdev %s\n", l.Name, p.Index, p.State, p.Netdev)
		}
	}
}

// Make a soft-RoCE device on a network interface, as "rdma link add" does.
func ExampleConn_NewLink() {
	c, err := nldev.Dial()
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if err := c.NewLink("rxe0", "rxe", "eth0"); err != nil {
		log.Fatal(err)
	}
}
