package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/goverbs/goverbs/tools/internal/printable"
	"github.com/goverbs/goverbs/uverbs"
)

const devinfoUsage = `usage: verbs devinfo [-v] [-json] [-l] [-d DEVICE]
Shows the RDMA devices and their ports, as ibv_devinfo and "rdma link" do.
Devices that cannot be opened are shown with the reason, and the exit status is
1; it is 2 for wrong flags and unknown devices. With -d sim0 or sim1 it shows a
ConnectX in software, which every machine has.
`

// devinfoOptions are the flags of verbs devinfo.
type devinfoOptions struct {
	verbose, json, list bool
	device              string
}

// cmdDevinfo is verbs devinfo.
func cmdDevinfo(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return devinfo(ctx, thisSystem{}, args, stdout, stderr)
}

// inventory is where devinfo learns of devices.
type inventory interface {
	devices() ([]uverbs.DeviceInfo, error)
	// query opens a device and asks it everything.
	query(uverbs.DeviceInfo) (*answers, error)
}

func devinfo(ctx context.Context, from inventory, args []string, stdout, stderr io.Writer) int {
	o, err := parseDevinfo(args, stdout)
	if err == nil && isSimulated(o.device) {
		from, err = newSimulatedSystem()
	}
	if err != nil {
		return exitStatus(ctx, "devinfo", err, stderr)
	}
	list, err := from.devices()
	if err == nil && o.device != "" {
		list, err = pick(list, o.device)
	}
	if err != nil {
		return exitStatus(ctx, "devinfo", withoutDevice(err, o.device), stderr)
	}
	if o.list && !o.json {
		return exitStatus(ctx, "devinfo", writeNames(stdout, list), stderr)
	}
	code := 0
	reports := make([]*deviceReport, 0, len(list))
	for _, info := range list {
		r := newDeviceReport(info)
		if !o.list {
			if a, err := from.query(info); err != nil {
				r.Error = printable.Error(err)
				code = 1
				fmt.Fprintf(stderr, "verbs devinfo: %s\n", r.Error)
			} else {
				r.fill(a)
			}
		}
		reports = append(reports, r)
	}
	if err := writeReports(stdout, reports, o); err != nil {
		return exitStatus(ctx, "devinfo", err, stderr)
	}
	return code
}

func parseDevinfo(args []string, stdout io.Writer) (o devinfoOptions, err error) {
	f := flag.NewFlagSet("verbs devinfo", flag.ContinueOnError)
	f.BoolVar(&o.verbose, "v", false, "show all limits, GIDs and P_Keys")
	f.BoolVar(&o.json, "json", false, "write JSON: everything, with keys that stay")
	f.BoolVar(&o.list, "l", false, "list the names only, and ask the devices nothing")
	f.StringVar(&o.device, "d", "", "show this `device` only; "+simulatedHelp)
	_, err = parseFlags(f, args, devinfoUsage, stdout)
	return o, err
}

// pick leaves the device of a name.
func pick(list []uverbs.DeviceInfo, name string) ([]uverbs.DeviceInfo, error) {
	names := make([]string, 0, len(list))
	for _, d := range list {
		if d.Name == name {
			return []uverbs.DeviceInfo{d}, nil
		}
		names = append(names, d.Name)
	}
	return nil, fmt.Errorf("%w: %q: there are %s", uverbs.ErrUnknownDevice, name, strings.Join(names, ", "))
}

func writeReports(w io.Writer, reports []*deviceReport, o devinfoOptions) error {
	if o.json {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(struct {
			Devices []*deviceReport `json:"devices"`
		}{reports})
	}
	p := printer{w: w, verbose: o.verbose}
	for _, r := range reports {
		p.device(r)
	}
	return p.err
}

func writeNames(w io.Writer, list []uverbs.DeviceInfo) error {
	plural := "s"
	if len(list) == 1 {
		plural = ""
	}
	_, err := fmt.Fprintf(w, "%d device%s found:\n", len(list), plural)
	for _, d := range list {
		if err == nil {
			_, err = fmt.Fprintf(w, "\t%s\n", d.Name)
		}
	}
	return err
}
