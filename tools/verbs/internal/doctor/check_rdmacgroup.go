package doctor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// checkRDMACgroup looks at how many contexts and objects the process's control groups allow.
var checkRDMACgroup = Check{
	Name:  "rdmacgroup",
	About: "how many contexts and objects of each device the control groups of the process may have, and have",
	After: []string{"devices", "namespace"},
	Run: func(_ context.Context, n *Node) ([]Finding, error) {
		if len(n.devices()) == 0 {
			return nil, nil
		}
		h, err := n.hierarchy("rdma")
		if err != nil {
			return nil, err
		}
		var found []Finding
		var errs []error
		limited := false
		for _, dir := range h.levels {
			file := dir + "/rdma.max"
			if !n.exists(file) {
				continue // the root's, or the controller is off
			}
			most, err := n.charges(file)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			used, err := n.charges(dir + "/rdma.current")
			if err != nil {
				errs = append(errs, err)
				continue
			}
			for _, d := range n.devices() {
				for _, what := range []struct{ key, name string }{{"hca_handle", "contexts"}, {"hca_object", "objects"}} {
					has, ok := most[d.Name][what.key]
					if !ok {
						continue
					}
					limited = true
					u := used[d.Name][what.key]
					n.saw("%s: /%s allows %d %s, %d are in use", d.Name, file, has, what.name, u)
					if f, ok := nearLimit(u, has); ok {
						f.Object = d.Name
						f.What = fmt.Sprintf("the control group has %d of the %d %s of the device that it may have: %s in it", u, has, what.name, f.What)
						f.Seen = fmt.Sprintf("/%s has %s=%d for %s, and rdma.current beside it %d", file, what.key, has, d.Name, u)
						f.Mend = fmt.Sprintf("echo '%s %s=max' > /%s", d.Name, what.key, file)
						found = append(found, f)
					}
				}
			}
		}
		if !limited && len(errs) == 0 {
			n.saw("no control group limits them")
		}
		return found, errors.Join(errs...)
	},
}

// charges reads lines such as
//
//	mlx5_0 hca_handle=2 hca_object=2000
//
// and leaves out what is max.
func (n *Node) charges(file string) (map[string]map[string]uint64, error) {
	s, err := n.read(file)
	if err != nil {
		return nil, err
	}
	all := make(map[string]map[string]uint64)
	for line := range strings.Lines(s) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		device := make(map[string]uint64)
		for _, w := range words[1:] {
			key, value, _ := strings.Cut(w, "=")
			if value == "max" {
				continue
			}
			v, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("/%s: %.60q is no limit", file, w)
			}
			device[key] = v
		}
		all[words[0]] = device
	}
	return all, nil
}
