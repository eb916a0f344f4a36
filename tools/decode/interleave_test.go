package decode

import (
	"fmt"
	"math/rand/v2"
	"sort"
	"strings"
	"testing"
)

// printer is what one CPU prints of one failed request, as mlx5e does: a line, the
// error CQE, a line, the work request.
func printer(i int) []string {
	lines := []string{fmt.Sprintf("mlx5_core 0:0.0 e%d: Error cqe on cqn %#x, ci 0x0, qn %#x, opcode 0xd, syndrome 0x2, vendor syndrome 0x68", i, 0x600+i, 0x100+i)}
	lines = append(lines, strings.Split(strings.TrimSuffix(numbered(fmt.Sprintf("00 00 00 00 86 00 68 02 25 00 01 %02x 00 0%d e8 d2", i, i)), "\n"), "\n")...)
	lines = append(lines, "WQE DUMP: WQ size 1024 WQ cur size 0, WQE index 0x0, len: 192")
	for row := range 12 {
		bytes := zeroRow
		switch row {
		case 0:
			bytes = fmt.Sprintf("00 00 00 25 00 01 %02x 0c 00 00 00 00 00 03 04 00", i)
		case 1:
			bytes = "90 00 00 00 00 02 00 00 00 00 00 00 20 00 00 00"
		}
		lines = append(lines, fmt.Sprintf("000000%x0: %s", row, bytes))
	}
	return lines
}

// TestInterleaved prints from four CPUs at once, in thousands of random orders:
// the four errors must come out, each whole and none with bytes of another.
func TestInterleaved(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	runs := 3000
	if testing.Short() {
		runs = 300
	}
	for run := range runs {
		var cpus [4][]string
		for i := range cpus {
			cpus[i] = printer(i)
		}
		var text strings.Builder
		for left := 4 * len(cpus[0]); left > 0; {
			c := r.IntN(4)
			// A CPU keeps the console for a while.
			for n := r.IntN(4); n >= 0 && len(cpus[c]) > 0; n-- {
				text.WriteString("[   18.153064] " + cpus[c][0] + "\n")
				cpus[c] = cpus[c][1:]
				left--
			}
		}
		_, got, _ := scanAll(t, text.String())
		sort.Slice(got, func(i, j int) bool { return got[i]["qpn"].(float64) < got[j]["qpn"].(float64) })
		for i := range 4 {
			want := values{"qpn": 0x100 + i, "wqe_counter": i, "syndrome": 2, "side": "requester",
				"hex": strings.Repeat("0", 96) + fmt.Sprintf("0000000086006802250001%02x000%de8d2", i, i)}
			if len(got) != 4 {
				t.Fatalf("run %d: found %d, want 4, in\n%s", run, len(got), &text)
			}
			expect(t, got, i, want)
		}
		if t.Failed() {
			t.Fatalf("run %d:\n%s", run, &text)
		}
	}
}
