package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goverbs/goverbs/tools/internal/plural"
	"github.com/goverbs/goverbs/tools/internal/printable"
	"github.com/goverbs/goverbs/uverbs"
)

// system is where devices come from.
type system interface {
	devices() ([]uverbs.DeviceInfo, error)
	open(name string) (*uverbs.Device, error)
}

// stage is where the demo plays: on two open devices, which may be one device
// opened twice. What it opens, the pair closes.
type stage struct {
	from  system
	names [2]string
	model *simulatedSystem // nil: a real device
	why   []string         // why not on others, if nobody named one
}

// chooseStage is the stage on the device of that name; without a name on the first
// that can be used, else on the model.
func chooseStage(from system, name string) (*stage, error) {
	if isSimulated(name) {
		return onModel(name, nil)
	}
	if name != "" {
		if err := usable(from, name); err != nil {
			return nil, err
		}
		return &stage{from: from, names: [2]string{name, name}}, nil
	}
	list, err := from.devices()
	var why []string
	if err != nil && !errors.Is(err, uverbs.ErrNoDevices) {
		why = append(why, printable.Error(err))
	}
	for _, d := range list {
		if err = d.Err; err == nil {
			err = usable(from, d.Name)
		}
		if err == nil {
			return &stage{from: from, names: [2]string{d.Name, d.Name}, why: why}, nil
		}
		why = append(why, printable.Error(err))
	}
	if len(why) == 0 {
		why = []string{"there is no RDMA device here"}
	}
	return onModel(simulatedNames[0], why)
}

func onModel(name string, why []string) (*stage, error) {
	m, err := newSimulatedSystem()
	if err != nil {
		return nil, err
	}
	return &stage{from: m, names: [2]string{name, simulatedPeer(name)}, model: &m, why: why}, nil
}

// usable says why a device cannot show anything: no port of it is up, or the
// library has no provider for its driver.
func usable(from system, name string) (err error) {
	d, err := from.open(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	up := false
	for port := 1; port <= d.Attr().Ports && !up; port++ {
		p, err := d.PortAttr(port)
		if err != nil {
			return err
		}
		up = p.State == uverbs.PortActive
	}
	if !up {
		return fmt.Errorf("%s: no port is up (verbs devinfo -d %s tells their states)", name, name)
	}
	_, err = d.NewCQ(1, nil)
	return err
}

// title is which devices it is, and what to succeed on them proves.
func (st *stage) title() (devices, proves string) {
	if st.model != nil {
		return st.names[0] + " and " + st.names[1] + ", a ConnectX in software (the model)", modelProves
	}
	return st.names[0] + ", a real device", "the library with this kernel's driver and this device, between two queue pairs of it; no network"
}

// latency says what the times of the ping-pong are not.
func (st *stage) latency() string {
	if st.model != nil {
		return "in one process, not a network latency"
	}
	return "looped back in the device, not a network latency"
}

// check looks at what is left when everything is closed.
func (st *stage) check(step *demoStep) error {
	if st.model == nil {
		step.Text = "everything is given back to the kernel"
		return nil
	}
	m := st.model.fabric.Model()
	broken := m.Violations()
	left := 0
	for _, d := range m.Devices() {
		for _, n := range d.Objects() {
			left += n
		}
	}
	step.Violations, step.ObjectsLeft = new(len(broken)), &left
	step.Text = fmt.Sprintf("%s broken that hardware would not notice, %s left on the devices", plural.Of(len(broken), "rule"), plural.Of(left, "object"))
	if len(broken) > 0 {
		return fmt.Errorf("the model saw rules broken: %s", strings.Join(broken, "; "))
	}
	if left > 0 {
		return fmt.Errorf("%s left on the devices", plural.Of(left, "object"))
	}
	return nil
}
