package sim_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"syscall"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/sim"
)

// Two devices, a connection, a message. Only the first lines differ from a program for
// hardware.
func Example() {
	fabric, err := sim.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	var qps [2]*uverbs.QP
	var mrs [2]*uverbs.MR
	var queues [2]*uverbs.CQ
	bufs := [2][]byte{make([]byte, 4096), make([]byte, 4096)}
	for i := range qps {
		dev, err := fabric.Open(fmt.Sprintf("sim%d", i), nil)
		if err != nil {
			log.Fatal(err)
		}
		defer dev.Close()
		pd, err := dev.NewPD()
		if err != nil {
			log.Fatal(err)
		}
		if mrs[i], err = pd.Register(bufs[i], uverbs.LocalWrite); err != nil {
			log.Fatal(err)
		}
		if queues[i], err = dev.NewCQ(64, nil); err != nil {
			log.Fatal(err)
		}
		if qps[i], err = pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: queues[i]}); err != nil {
			log.Fatal(err)
		}
	}
	for i, qp := range qps {
		if err := qp.Connect(context.Background(), qps[1-i].Endpoint(), nil); err != nil {
			log.Fatal(err)
		}
	}
	qps[1].RecvQueue().Recv(1, mrs[1].Span(0, 4096))
	if err := qps[1].RecvQueue().Flush(); err != nil {
		log.Fatal(err)
	}
	copy(bufs[0], "hello")
	qps[0].SendQueue().Send(2, mrs[0].Span(0, 5))
	if err := qps[0].SendQueue().Flush(); err != nil {
		log.Fatal(err)
	}
	for _, q := range queues {
		var wcs [4]uverbs.WC
		n, err := q.Poll(wcs[:])
		if err != nil {
			log.Fatal(err)
		}
		for _, w := range wcs[:n] {
			fmt.Println(w.ID, w.Opcode, w.Bytes, w.Status)
		}
	}
	fmt.Printf("%s\n", bufs[1][:5])
	fmt.Println(fabric.Model().Violations())
	// Output:
	// 2 send 5 success
	// 1 receive 5 success
	// hello
	// []
}

// Devices are of the kind that a test needs.
func ExampleNew() {
	fabric, err := sim.New(&sim.Options{Devices: []model.DeviceConfig{
		{Name: "roce", Ports: make([]model.PortConfig, 2)},
		{Name: "ib", Ports: []model.PortConfig{{InfiniBand: true, LID: 7}}},
		{Name: "old", StaticUARs: true, NoBlueFlame: true},
	}})
	if err != nil {
		log.Fatal(err)
	}
	list, err := fabric.Devices()
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range list {
		fmt.Println(d.Name, d.Driver, d.Ports, d.Err)
	}
	_, err = fabric.Open("mlx5_0", nil)
	fmt.Println(err)
	// Output:
	// ib mlx5 1 <nil>
	// old mlx5 1 <nil>
	// roce mlx5 2 <nil>
	// goverbs: no such device: "mlx5_0": there are ib, old, roce
}

// What happens to devices, happens when the test wants it.
func ExampleFabric_Model() {
	fabric, err := sim.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	dev, err := fabric.Open("sim0", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()

	if err := fabric.Model().Device("sim0").SetPort(1, false); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-dev.Events())

	if err := fabric.Model().Script("ioctl 2 method=IB_USER_VERBS_CMD_ALLOC_PD: refuse ENOMEM"); err != nil {
		log.Fatal(err)
	}
	for range 3 {
		_, err := dev.NewPD()
		fmt.Println(errors.Is(err, syscall.ENOMEM))
	}

	fabric.Model().Device("sim0").Fail()
	fmt.Println(<-dev.Events())
	_, err = dev.PortAttr(1)
	fmt.Println(errors.Is(err, uverbs.ErrDeviceGone))
	// Output:
	// port error on port 1
	// false
	// true
	// false
	// device fatal error
	// true
}
