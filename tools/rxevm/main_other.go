//go:build !linux

package main

import (
	"fmt"
	"os"
)

// main says what rxevm would need: it is a Linux program.
func main() {
	fmt.Fprintln(os.Stderr, "rxevm: this system is not Linux. rxevm boots Debian kernels (packages linux-image-amd64, linux-image-arm64) with rdma-core "+
		"(ibverbs-utils, ibverbs-providers, perftest, iproute2, busybox) in QEMU (qemu-system-x86, qemu-system-arm): run it on Debian or in a Debian container.")
	os.Exit(3)
}
