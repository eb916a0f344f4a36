//go:build !linux

package main

import "io"

// openTopScreen has none: RDMA netlink is on Linux.
func openTopScreen(io.Writer) (topScreen, error) { return nil, nil }
