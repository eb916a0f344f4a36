package uverbs_test

import (
	"fmt"
	"log"

	"github.com/goverbs/goverbs/uverbs"
)

// Ask a device for the state of a port and the addresses of its GID table.
func ExampleDevice_GIDTable() {
	d, err := uverbs.Open("rxe0", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	table, err := d.GIDTable()
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range table {
		p, err := d.PortAttr(e.Port)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("port %d (%v, MTU %d): %d %v %v\n", e.Port, p.State, p.ActiveMTU, e.Index, e.GID, e.Type)
	}
}
