package doctor

import "context"

// checkModules looks at the kernel's modules.
var checkModules = Check{
	Name:  "modules",
	About: "the kernel modules of RDMA",
	After: []string{"system"},
	Run: func(context.Context, *Node) ([]Finding, error) {
		return nil, nil
	},
}
