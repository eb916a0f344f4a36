//go:build linux && (amd64 || arm64)

package simproc_test

import (
	"fmt"
	"log"
	"os"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/uverbs/uverbstest/simproc"
)

// A program that knows nothing of it finds the devices of a model.
func ExampleServe() {
	m, err := model.New(model.DeviceConfig{Name: "mlx5_0"})
	if err != nil {
		log.Fatal(err)
	}
	s, err := simproc.Serve(m, &simproc.Options{NoMount: true})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	c := s.Command("ibv_devinfo", "-v")
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	if err := c.Run(); err != nil {
		log.Print(err)
		return
	}
	fmt.Println(m.Violations())
}
