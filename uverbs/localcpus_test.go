package uverbs

import (
	"io/fs"
	"reflect"
	"testing"
	"testing/fstest"

	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// withSysfs is a kernel with another sysfs.
type withSysfs struct {
	kernel.Kernel
	sys fs.FS
}

func (k withSysfs) Sysfs() fs.FS { return k.sys }

func TestLocalCPUs(t *testing.T) {
	const own, below = "class/infiniband/mlx5_0/device/", "class/net/eth0/device/"
	for name, c := range map[string]struct {
		files map[string]string
		want  []int
	}{
		"nothing":              {nil, nil},
		"its own":              {map[string]string{own + "numa_node": "1\n", own + "local_cpulist": "0-2,7\n", below + "numa_node": "0\n", below + "local_cpulist": "9\n"}, []int{0, 1, 2, 7}},
		"those below":          {map[string]string{below + "numa_node": "0\n", below + "local_cpulist": "9\n"}, []int{9}},
		"no node":              {map[string]string{own + "numa_node": "-1\n", own + "local_cpulist": "0-7\n"}, nil},
		"no list":              {map[string]string{own + "numa_node": "1\n"}, nil},
		"an empty list":        {map[string]string{own + "numa_node": "1\n", own + "local_cpulist": "\n"}, nil},
		"too many":             {map[string]string{own + "numa_node": "1\n", own + "local_cpulist": "0-8192\n"}, nil},
		"many again and again": {map[string]string{own + "numa_node": "1\n", own + "local_cpulist": "0-8191,0-8191,0-8191\n"}, nil},
		"backwards":            {map[string]string{own + "numa_node": "1\n", own + "local_cpulist": "3-1\n"}, nil},
	} {
		sys := make(fstest.MapFS)
		for file, text := range c.files {
			sys[file] = &fstest.MapFile{Data: []byte(text)}
		}
		d := &Device{kernel: withSysfs{fakekernel.New(), sys}}
		d.info.Name, d.info.Netdev = "mlx5_0", "eth0"
		if got := (&CQ{object: object{dev: d}}).LocalCPUs(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
