//go:build !race && (amd64 || arm64 || ppc64le || ppc64 || riscv64 || s390x || loong64 || mips64 || mips64le)

package poll

// bump adds to a counter that one goroutine writes and others read with atomic loads.
// Aligned words of 64 bits are stored whole here. An atomic store would be a locked
// instruction on amd64, which costs more than the look that it counts.
func bump(p *uint64, n uint64) { *p += n }
