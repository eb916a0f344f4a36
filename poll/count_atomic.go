//go:build race || !(amd64 || arm64 || ppc64le || ppc64 || riscv64 || s390x || loong64 || mips64 || mips64le)

package poll

import "sync/atomic"

// bump adds to a counter that one goroutine writes and others read with atomic loads.
// It stands where a plain store may be seen by halves, and where the race detector
// watches.
func bump(p *uint64, n uint64) { atomic.StoreUint64(p, *p+n) }
