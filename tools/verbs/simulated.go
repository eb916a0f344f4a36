package main

import (
	"slices"
	"strings"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/sim"
)

// The devices of the model have these names, which -d takes; a device of the
// system that has one of them cannot be named. sim0 and sim1 reach each other.
var simulatedNames = []string{"sim0", "sim1"}

// isSimulated says whether a device is one of the model's.
func isSimulated(name string) bool { return slices.Contains(simulatedNames, name) }

// simulatedPeer is the other device of the model.
func simulatedPeer(name string) string {
	return simulatedNames[1-slices.Index(simulatedNames, name)]
}

// modelProves is what a success on the model shows, and what it does not.
const modelProves = "the library's ConnectX data path, against a model that is as strict with every WQE, CQE, doorbell and request as hardware and driver; no silicon, no kernel, no network"

// simulatedSystem is the devices of the model, made when they are asked for.
type simulatedSystem struct{ fabric *sim.Fabric }

func newSimulatedSystem() (simulatedSystem, error) {
	f, err := sim.New(nil)
	return simulatedSystem{f}, err
}

// devices lists the devices, of which none has a file on this machine.
func (s simulatedSystem) devices() ([]uverbs.DeviceInfo, error) {
	list, err := s.fabric.Devices()
	for i := range list {
		list[i].Path, list[i].UverbsName = "", ""
	}
	return list, err
}

func (s simulatedSystem) open(name string) (*uverbs.Device, error) { return s.fabric.Open(name, nil) }

// query asks a device of the model. Its network devices are none of this machine.
func (s simulatedSystem) query(info uverbs.DeviceInfo) (*answers, error) {
	return ask(s.open, info.Name, func(int) string { return "" })
}

// simulatedHelp is what the help of -d says of the model.
var simulatedHelp = strings.Join(simulatedNames, " and ") + " are a ConnectX in software"
