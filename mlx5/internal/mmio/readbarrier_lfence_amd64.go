//go:build goverbs_lfence

package mmio

// ReadBarrier stands between the owner words of completions and their bodies. It
// is LFENCE, as the build tag goverbs_lfence asks.
func ReadBarrier()
