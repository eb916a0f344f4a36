package poll

import (
	"bufio"
	"bytes"
	"io"
	"io/fs"
	"slices"
	"strconv"
)

// interruptRow is a line of /proc/interrupts.
type interruptRow struct {
	name string
	ran  []int // the processors with a count above 0
	msi  int   // the interrupt's place in the device's table, or -1
}

// maxInterruptLine is more than a line of /proc/interrupts has: 11 characters for each
// processor, and names.
const maxInterruptLine = 16*maxCPUs + 4096

// interruptsOf reads the lines of /proc/interrupts that are of the interrupts in want,
// which is sorted. It tells when it could not read to the end.
func interruptsOf(root fs.FS, want []int) (rows map[int]interruptRow, truncated bool) {
	f, err := root.Open("proc/interrupts")
	if err != nil {
		return nil, true
	}
	defer f.Close()
	return parseInterrupts(f, want)
}

// parseInterrupts is interruptsOf for what was opened. The first line names the
// processors that are online:
//
//	CPU0       CPU1       CPU4
//
// and each of the others has the number of an interrupt, a count for each of these, the
// controller, of one or more words, and the handlers:
//
//	99:        324          0       4360  IR-PCI-MSIX-0000:01:00.0    1-edge      mlx5_comp0@pci:0000:01:00.0
//
// Lines of interrupts without a number, such as NMI, and those cut short are left out.
func parseInterrupts(r io.Reader, want []int) (rows map[int]interruptRow, truncated bool) {
	rows = make(map[int]interruptRow)
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxInterruptLine)
	var online []int
	for first := true; lines.Scan(); first = false {
		fields := bytes.Fields(lines.Bytes())
		if first {
			for _, f := range fields {
				n, err := strconv.ParseUint(string(bytes.TrimPrefix(f, []byte("CPU"))), 10, 16)
				if err != nil || n >= maxCPUs || len(online) == maxCPUs {
					return rows, true
				}
				online = append(online, int(n))
			}
			continue
		}
		if len(fields) == 0 {
			continue
		}
		number, ok := bytes.CutSuffix(fields[0], []byte(":"))
		irq, err := strconv.ParseUint(string(number), 10, 31)
		if !ok || err != nil || len(fields) < 1+len(online) {
			continue
		}
		if _, wanted := slices.BinarySearch(want, int(irq)); !wanted {
			continue
		}
		if row, ok := parseRow(fields[1:], online); ok {
			rows[int(irq)] = row
		}
	}
	return rows, lines.Err() != nil
}

// parseRow reads what follows the number of an interrupt: a count for each processor, and
// words.
func parseRow(fields [][]byte, online []int) (row interruptRow, ok bool) {
	row.msi = -1
	for i, cpu := range online {
		n, err := strconv.ParseUint(string(fields[i]), 10, 64)
		if err != nil {
			return row, false
		}
		if n > 0 {
			row.ran = append(row.ran, cpu)
		}
	}
	words := fields[len(online):]
	if len(words) < 2 {
		return row, false
	}
	// Handlers of ours have names of one word; shared lines are not MSI.
	row.name = string(words[len(words)-1])
	// Before it is 1-edge, or on ARM 1 Edge.
	number, ok := bytes.CutSuffix(words[len(words)-2], []byte("-edge"))
	if !ok && len(words) > 2 && string(words[len(words)-2]) == "Edge" {
		number, ok = words[len(words)-3], true
	}
	if n, err := strconv.ParseUint(string(number), 10, 64); ok && err == nil {
		// With the device's address above it, or without: the lowest 11 bits are
		// the place in the table (pci_msi_domain_calc_hwirq in Linux).
		row.msi = int(n & 2047)
	}
	return row, true
}
