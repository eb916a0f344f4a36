//go:build linux

package kernel

import (
	"os"
	"syscall"
)

// maxNodes is more than the kernel can be configured for (MAX_NUMNODES).
const maxNodes = 1024

// residentChunk is how many pages residency is asked of at a time.
const residentChunk = 1 << 16

// Nodes implements [Kernel]. It uses mincore and get_mempolicy: move_pages would
// do it in one call, but container runtimes forbid that one whatever the
// container's capabilities are.
func (linux) Nodes(m *Mapping) (map[int]int, error) {
	if m.page == 0 {
		return nil, syscall.EINVAL // not from Alloc
	}
	small := os.Getpagesize()
	nodes, resident := make(map[int]int), make([]byte, min(residentChunk, len(m.b)/small))
	for rest := m.b; len(rest) > 0; {
		part := rest[:min(len(rest), residentChunk*small)]
		rest = rest[len(part):]
		if err := mincore(part, resident); err != nil {
			return nil, err
		}
		// Chunks begin at huge pages too: those are at most as large as
		// a chunk, or a multiple of it.
		for off := 0; off < len(part); off += m.page {
			if resident[off/small]&1 == 0 {
				continue
			}
			node, err := nodeOf(&part[off])
			if err != nil {
				return nil, err
			}
			nodes[node] += min(m.page, len(part))
		}
	}
	return nodes, nil
}

// nodeMask is a set of one node, as the kernel takes it.
func nodeMask(node int) ([maxNodes / wordBits]uintptr, error) {
	var mask [maxNodes / wordBits]uintptr
	if node < 0 || node >= maxNodes {
		return mask, syscall.EINVAL
	}
	mask[node/wordBits] = 1 << (node % wordBits)
	return mask, nil
}
