//go:build !goverbs_lfence

package mmio

// ReadBarrier stands between the owner words of completions and their bodies. On
// amd64 it is nothing, for the reasons in the package's comment, and LFENCE with
// the build tag goverbs_lfence.
func ReadBarrier() {}
