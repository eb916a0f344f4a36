package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/tools/internal/flags"
)

// options are what the flags of run say.
type options struct {
	devices, ports        int
	link, uar             string
	faults                string
	stat, noMount, strict bool
	trace                 bool
	pcap                  string
	allowViolations       bool
	wait                  time.Duration
	programs              [][]string
}

// parse reads the arguments of run. The error is flag.ErrHelp or for status 2.
func parse(args []string, stdout io.Writer) (*options, error) {
	o := new(options)
	fs := flag.NewFlagSet("mlx5sim run", flag.ContinueOnError)
	fs.IntVar(&o.devices, "devices", 1, "how many devices there are, `N` from 1 to 16: mlx5_0 and so on")
	fs.IntVar(&o.ports, "ports", 1, "how many ports each has, `N` from 1 to 2")
	fs.StringVar(&o.link, "link", "ib", "what the ports are, `ib or eth`: InfiniBand or RoCE, where programs need a GID index (-g 0, perftest -x 0)")
	fs.StringVar(&o.uar, "uar", "dynamic", "which registers programs get, `dynamic or static`, as from newer or older kernels")
	fs.StringVar(&o.faults, "faults", "", "a `FILE` of things that go wrong, one a line, such as request 3: drop")
	fs.BoolVar(&o.stat, "stat", false, "print at the end what was done")
	fs.BoolVar(&o.trace, "trace", false, "print to standard error what happens, one a line: ioctls, WQEs, CQEs, events and states of QPs, each with the process that has the device open")
	fs.StringVar(&o.pcap, "pcap", "", "write to a `FILE` for Wireshark the packets that a network would carry, without their payload: frames of RoCE v2, on InfiniBand too")
	fs.BoolVar(&o.noMount, "nomount", false, "use no namespaces and no mounts: slower, and for where they are not allowed")
	fs.BoolVar(&o.strict, "strict", false, "look only at queues whose doorbell was seen: for programs with one queue pair and one completion queue")
	fs.DurationVar(&o.wait, "wait", 2*time.Second, "how long a program may take to listen on a TCP port before the next one starts, a `TIME`")
	fs.BoolVar(&o.allowViolations, "allow-violations", false, "print what programs should not have done, but let it be no failure")
	err := flags.Parse(fs, args, usage+"\nflags:\n", stdout)
	if err != nil {
		return nil, err
	}
	switch {
	case o.devices < 1 || o.devices > 16:
		return nil, fmt.Errorf("-devices %d: want 1 to 16", o.devices)
	case o.ports < 1 || o.ports > 2:
		return nil, fmt.Errorf("-ports %d: want 1 or 2", o.ports)
	case o.wait < 0:
		return nil, fmt.Errorf("-wait %v: want 0 or more", o.wait)
	case o.link != "ib" && o.link != "eth":
		return nil, fmt.Errorf("-link %q: want ib or eth", o.link)
	case o.uar != "dynamic" && o.uar != "static":
		return nil, fmt.Errorf("-uar %q: want dynamic or static", o.uar)
	}
	o.programs, err = programs(fs.Args())
	return o, err
}

// programs takes the arguments after the flags apart.
func programs(args []string) ([][]string, error) {
	all := [][]string{nil}
	for _, a := range args {
		if a == "--and" {
			all = append(all, nil)
			continue
		}
		last := len(all) - 1
		all[last] = append(all[last], a)
	}
	for i, p := range all {
		switch {
		case len(p) > 0:
		case len(all) == 1:
			return nil, errors.New("no program: add -- PROGRAM ARGS")
		default:
			return nil, fmt.Errorf("program %d of %d is empty: --and stands between two programs", i+1, len(all))
		}
	}
	return all, nil
}

// model makes the devices, and what goes wrong with them. An error is for status 2.
func (o *options) model() (*model.Model, error) {
	var devices []model.DeviceConfig
	for i := range o.devices {
		d := model.DeviceConfig{Name: fmt.Sprintf("mlx5_%d", i), StaticUARs: o.uar == "static"}
		for range o.ports {
			d.Ports = append(d.Ports, model.PortConfig{InfiniBand: o.link == "ib"})
		}
		devices = append(devices, d)
	}
	m, err := model.New(devices...)
	if err != nil || o.faults == "" {
		return m, err
	}
	text, err := os.ReadFile(o.faults)
	if err != nil {
		return nil, fmt.Errorf("-faults: %w", err)
	}
	if err := m.Script(string(text)); err != nil {
		return nil, fmt.Errorf("-faults %s: %w", o.faults, err)
	}
	return m, nil
}
