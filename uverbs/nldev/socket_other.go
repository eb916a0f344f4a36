//go:build !linux

package nldev

import (
	"errors"
	"fmt"
)

func openSocket() (socket, error) {
	return nil, fmt.Errorf("RDMA netlink needs Linux: %w", errors.ErrUnsupported)
}
