//go:build !amd64 && !arm64

package poll

// pause rests for a few cycles n times. There is no instruction for it that the
// assembler has on every architecture.
//
//go:noinline
func pause(n uint32) {
	for range 8 * n {
	}
}
