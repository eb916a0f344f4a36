package poll

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// host reads a tree of proc and sysfs: text, which says where it is from, and then the
// files, each after a line with its name between hyphens.
func host(t testing.TB, name string) fstest.MapFS {
	t.Helper()
	text, err := os.ReadFile("testdata/irq/" + name + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	root := make(fstest.MapFS)
	for i, part := range strings.Split("\n"+string(text), "\n-- ") {
		if i == 0 {
			continue
		}
		file, body, ok := strings.Cut(part, " --\n")
		if !ok {
			t.Fatalf("%s: %q is not a file", name, part)
		}
		root[file] = &fstest.MapFile{Data: []byte(body)}
	}
	return root
}

// said is what a test expects of a device.
func said(v *Vectors) string {
	var b strings.Builder
	for _, w := range v.Vectors {
		fmt.Fprintf(&b, "%d:%d allowed %s effective %s ran %s; ", w.Index, w.IRQ, formatCPUs(w.Allowed), formatCPUs(w.Effective), formatCPUs(w.Ran))
	}
	b.WriteString("others")
	for _, i := range v.Others {
		fmt.Fprintf(&b, " %d", i.IRQ)
	}
	return b.String()
}

func TestVectors(t *testing.T) {
	for _, c := range []struct {
		host, device string
		want         string
		node         int
		near         string
		unknown      string
	}{
		{"mlx5", "mlx5_0", "0:99 allowed 0-11 effective 7 ran 0,7; 1:109 allowed 8 effective 8 ran 1,8; 2:110 allowed 0-11 effective  ran 2,9; others 98", 0, "0-5", ""},
		{"mlx5", "mlx5_1", "0:102 allowed  effective  ran ; others 101", -1, "", ""},
		{"mlx5-hyperv", "mlx5_an0", "0:34 allowed  effective  ran 0-1; 1:35 allowed  effective  ran 1; others 33", -1, "", ""},
		{"mlx5-old", "mlx5_0", "0:28 allowed  effective  ran 0; 1:29 allowed  effective  ran 0; others 24 25 26", -1, "", ""},
		{"mlx5-one-off", "mlx5_0", "0:36 allowed  effective  ran 0; 1:40 allowed  effective  ran 1; 2:42 allowed  effective  ran 0; others 34", -1, "", ""},
		{"drivers", "irdma0", "0:51 allowed  effective  ran 2; 1:52 allowed 5 effective  ran 5; others 50", -1, "", ""},
		{"drivers", "irdma1", "0:53 allowed  effective  ran 2; 1:54 allowed  effective  ran 5; others", -1, "", ""},
		{"drivers", "hns_0", "0:62 allowed  effective  ran 5; 1:63 allowed  effective  ran 5; others 60 61", -1, "", ""},
		{"drivers", "efa_0", "0:71 allowed  effective  ran 0; others 70", -1, "", ""},
		{"drivers", "erdma_0", "0:81 allowed  effective  ran 0; others 80", -1, "", ""},
		{"drivers", "bnxt_re0", "others 90 91", -1, "", "of its own choice"},
		{"drivers", "new0", "others 95", -1, "", "the names of the 1 interrupts of new0 do not tell"},
		{"drivers", "rxe0", "others", -1, "2,5", "rxe0 has no interrupts of its own"},
	} {
		t.Run(c.host+"/"+c.device, func(t *testing.T) {
			v, err := readVectors(host(t, c.host), c.device)
			if err != nil {
				t.Fatal(err)
			}
			if s := said(v); s != c.want {
				t.Errorf("%s\nwant %s", s, c.want)
			}
			if v.Node != c.node || formatCPUs(v.Near) != c.near || v.Device != c.device {
				t.Errorf("%s on node %d, near %s: want %d, %s", v.Device, v.Node, formatCPUs(v.Near), c.node, c.near)
			}
			if (v.Unknown != nil) != (c.unknown != "") || v.Unknown != nil && (!errors.Is(v.Unknown, ErrVectors) || !strings.Contains(v.Unknown.Error(), c.unknown)) {
				t.Errorf("unknown: %v, want %q", v.Unknown, c.unknown)
			}
		})
	}
}

func TestVectorsOfNoDevice(t *testing.T) {
	for _, device := range []string{"mlx5_9", "", "..", "mlx5_0/device", "a/../mlx5_0"} {
		if v, err := readVectors(host(t, "mlx5"), device); err == nil {
			t.Errorf("%q: %+v", device, v)
		}
	}
	if _, err := readVectors(host(t, "mlx5"), "mlx5_9"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := ReadVectors("no-such-device"); err == nil {
		t.Error("no-such-device has vectors")
	}
}

// Whose names cannot be read, has unknown ones.
func TestVectorsWithoutNames(t *testing.T) {
	root := host(t, "mlx5")
	delete(root, "proc/interrupts")
	v, err := readVectors(root, "mlx5_0")
	if err != nil || !errors.Is(v.Unknown, ErrVectors) || !strings.Contains(v.Unknown.Error(), "cannot be read") || len(v.Others) != 4 || formatCPUs(v.Others[1].Effective) != "7" {
		t.Errorf("%+v, %v", v, err)
	}
}

func TestVectorCPU(t *testing.T) {
	v, err := readVectors(host(t, "mlx5"), "mlx5_0")
	if err != nil {
		t.Fatal(err)
	}
	all, err := parseCPUs("0-11")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		index   int
		allowed []int
		want    int // -1: none
	}{
		{0, all, 7},           // where it runs
		{1, all, 8},           // where it runs
		{2, all, 2},           // anywhere, so near the device
		{5, all, 5},           // unknown, so near the device
		{6, all, 0},           // and round
		{0, []int{1, 3}, 1},   // not where it runs
		{1, []int{1, 3}, 3},   // each its own
		{0, []int{9, 10}, -1}, // a mask of all says nothing, and neither is near
		{0, []int{11}, 11},    // no choice
		{2, []int{6, 7, 8}, -1},
		{-1, all, -1},
	} {
		cpu, ok := v.CPU(c.index, c.allowed)
		if !ok {
			cpu = -1
		}
		if cpu != c.want {
			t.Errorf("vector %d of %v: %d, want %d", c.index, c.allowed, cpu, c.want)
		}
	}
}

func TestParseCPUs(t *testing.T) {
	for s, want := range map[string][]int{
		"":            nil,
		"0":           {0},
		"0-3,7":       {0, 1, 2, 3, 7},
		"7,0-1,1-2":   {0, 1, 2, 7},
		"8190-8191":   {8190, 8191},
		"64,128-129":  {64, 128, 129},
		"261":         {261},
		"0-0,2-2,4-5": {0, 2, 4, 5},
	} {
		got, err := parseCPUs(s)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", s, got, err)
		}
		if again, err := parseCPUs(formatCPUs(got)); err != nil || !slices.Equal(again, got) {
			t.Errorf("%q: written as %q", s, formatCPUs(got))
		}
	}
	for _, s := range []string{",", "0,", "-", "-1", "3-1", "8192", "0-8192", "0-99999999999", "a", "0 1", "0x1", "+1", "0--1", strings.Repeat("0-8191,", 1000) + "0"} {
		if got, err := parseCPUs(s); err == nil {
			t.Errorf("%.20q: %v", s, got)
		}
	}
}

// Machines have thousands of processors, and lines of a hundred kilobytes.
func TestInterruptsOfALargeMachine(t *testing.T) {
	var b bytes.Buffer
	for i := range maxCPUs {
		fmt.Fprintf(&b, " %10s", fmt.Sprintf("CPU%d", i))
	}
	b.WriteString("\n 300:")
	for i := range maxCPUs {
		fmt.Fprintf(&b, " %10d", i/(maxCPUs-1)*2147483647)
	}
	b.WriteString("  IR-PCI-MSIX-0000:3b:00.0 1001-edge      mlx5_comp1000@pci:0000:3b:00.0\n")
	rows, truncated := parseInterrupts(&b, []int{300})
	want := interruptRow{name: "mlx5_comp1000@pci:0000:3b:00.0", ran: []int{maxCPUs - 1}, msi: 1001}
	if truncated || !reflect.DeepEqual(rows[300], want) {
		t.Errorf("%+v, %v", rows, truncated)
	}
}

// FuzzInterrupts gives the parser hostile text, of which it must not take more than was
// asked for.
func FuzzInterrupts(f *testing.F) {
	for _, name := range []string{"mlx5", "mlx5-hyperv", "mlx5-old", "mlx5-one-off", "drivers"} {
		f.Add(host(f, name)["proc/interrupts"].Data)
	}
	f.Add([]byte("CPU0 CPU8191\n1: 0 18446744073709551615 X 99999999999999999999-edge a\n"))
	f.Add([]byte("CPU0\n1: 0\n1: 0 a\n1:\n 1: 99999999999999999999 a b\nERR: 0\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		want := []int{1, 34, 52, 99, 109}
		rows, _ := parseInterrupts(bytes.NewReader(text), want)
		for irq, row := range rows {
			if !slices.Contains(want, irq) {
				t.Errorf("interrupt %d was not asked for", irq)
			}
			if row.msi < -1 || row.msi > 2047 || row.name == "" || len(row.ran) > maxCPUs {
				t.Errorf("%+v", row)
			}
			for _, c := range row.ran {
				if c < 0 || c >= maxCPUs {
					t.Errorf("processor %d", c)
				}
			}
			if how, n := vectorOf(row.name); n < 0 || n > 4095 || how == silent && n != 0 {
				t.Errorf("%q: %d, %d", row.name, how, n)
			}
		}
		// And the same as part of a device.
		root := fstest.MapFS{"proc/interrupts": {Data: text}}
		for _, irq := range want {
			root[fmt.Sprintf("sys/class/infiniband/d/device/msi_irqs/%d", irq)] = &fstest.MapFile{}
			root[fmt.Sprintf("proc/irq/%d/smp_affinity_list", irq)] = &fstest.MapFile{Data: text}
		}
		v, err := readVectors(root, "d")
		if err != nil {
			t.Fatal(err)
		}
		if len(v.Vectors)+len(v.Others) != len(want) {
			t.Errorf("%d vectors and %d others of %d", len(v.Vectors), len(v.Others), len(want))
		}
		seen := make(map[int]bool)
		for _, w := range v.Vectors {
			if seen[w.Index] || w.Index < 0 {
				t.Errorf("vector %d comes twice, or is none", w.Index)
			}
			seen[w.Index] = true
			v.CPU(w.Index, nil)
		}
	})
}
