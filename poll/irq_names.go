package poll

import (
	"strconv"
	"strings"
)

// knows is what the name of an interrupt says.
type knows uint8

const (
	silent  knows = iota // not that it serves completions
	tells                // which completion vector it serves
	chooses              // that it serves completions, of what queues the driver chooses
)

// vectorOf returns the number in the name of an interrupt that serves completions. What
// the drivers of Linux call them:
//
//   - mlx5_core: mlx5_comp3@pci:0000:3b:00.0, and mlx5_combined0@pci:... where there is one
//     interrupt for everything (irq_set_name in mlx5/core/pci_irq.c). The interrupts of
//     subfunctions, mlx5_sf_comp3, are chosen by the driver.
//   - irdma: irdma-0000:17:00.0-CEQ-3, and irdma-0000:17:00.0-AEQCEQ-0 where the first is
//     shared (irdma_cfg_ceq_vector in irdma/hw.c; a queue's CEQ is its vector). Older
//     kernels name all CEQ, which tells nothing.
//   - hns_roce: hns-0000:7d:00.2-ceq-3, on older kernels hns-ceq-3 (hns_roce_hw_v2.c).
//   - efa: efa-comp3@pci:0000:00:1e.0 (efa_main.c).
//   - erdma: erdma-ceq3@pci:0000:00:05.0 (erdma_eq.c).
//   - bnxt_re: bnxt_re-nq-3@pci:0000:18:00.0. The driver puts a queue where there are
//     fewest, so no vector has an interrupt.
func vectorOf(name string) (knows, int) {
	front, bus, at := strings.Cut(name, "@pci:")
	how := tells
	switch {
	case strings.HasPrefix(front, "mlx5_combined") && at:
		front = front[len("mlx5_combined"):]
	case strings.HasPrefix(front, "mlx5_comp") && at:
		front = front[len("mlx5_comp"):]
	case strings.HasPrefix(front, "mlx5_sf_comp") && at:
		front, how = front[len("mlx5_sf_comp"):], chooses
	case strings.HasPrefix(front, "efa-comp") && at:
		front = front[len("efa-comp"):]
	case strings.HasPrefix(front, "erdma-ceq") && at:
		front = front[len("erdma-ceq"):]
	case strings.HasPrefix(front, "bnxt_re-nq-") && at:
		front, how = front[len("bnxt_re-nq-"):], chooses
	case strings.HasPrefix(name, "bnxt_qplib_nq-"):
		front, how = name[len("bnxt_qplib_nq-"):], chooses
	case strings.HasPrefix(name, "irdma-") || strings.HasPrefix(name, "hns-"):
		i := strings.LastIndexByte(name, '-')
		front = name[i+1:]
		if kind := name[:i]; !strings.HasSuffix(kind, "-CEQ") && !strings.HasSuffix(kind, "-AEQCEQ") && !strings.HasSuffix(kind, "-ceq") {
			return silent, 0
		}
		bus = "none"
	default:
		return silent, 0
	}
	n, err := strconv.ParseUint(front, 10, 12)
	if err != nil || at && bus == "" {
		return silent, 0
	}
	return how, int(n)
}

// vectorBase is the number in the names of interrupts that serves vector 0. In some
// versions before Linux 6.9 mlx5_core names the interrupt of vector 0 mlx5_comp1, as it
// comes second in the device's table, after that of asynchronous events (the change that
// put it right subtracts MLX5_IRQ_VEC_COMP_BASE in irq_set_name). That is taken to be so
// when none is called mlx5_comp0 and each has its number for its place.
func vectorBase(all []Interrupt) int {
	found := false
	for _, i := range all {
		if how, n := vectorOf(i.Name); how == tells && strings.HasPrefix(i.Name, "mlx5_comp") {
			if n == 0 || i.msi != n {
				return 0
			}
			found = true
		}
	}
	if found {
		return 1
	}
	return 0
}
