package pingpong

import (
	"math"

	"github.com/goverbs/goverbs/tools/verbs/internal/usage"
)

// Config is what to play, and with whom.
type Config struct {
	// Server is the host whose server to play with; "" is to be the server.
	Server string
	// Port is the TCP port on which the two sides tell their addresses.
	Port int

	// Device is the RDMA device; "" is the first that can be opened.
	Device string
	// IBPort is the device's port, numbered from 1.
	IBPort int
	// GIDIndex is the place of the local GID in the port's table, or
	// DefaultGID.
	GIDIndex int

	// Size is the length of a message in bytes.
	Size int
	// MTU is the largest packet payload in bytes. Both sides have to choose
	// the same.
	MTU int
	// RxDepth is how many receives are posted at a time.
	RxDepth int
	// Iters is how many messages each side sends. Both sides have to choose
	// the same.
	Iters int
	// SL is the service level of the packets.
	SL int

	// Events is to sleep until the device reports a completion, rather than
	// to poll.
	Events bool
	// Check is to look at what every message carries. It asks for the same
	// choice of an ibv_rc_pingpong that is the client.
	Check bool
}

// DefaultGID lets the device choose: the rules are those of uverbs.FromPort.
const DefaultGID = -1

// Default are the choices that ibv_rc_pingpong makes, except for the GID: it has
// no default that works on RoCE.
func Default() Config {
	return Config{Port: 18515, IBPort: 1, GIDIndex: DefaultGID, Size: 4096, MTU: 1024, RxDepth: 500, Iters: 1000}
}

// Validate checks what needs no device. Its errors are *usage.Errors.
func (c *Config) Validate() error {
	for _, f := range []struct {
		name             string
		value, min, most int
	}{
		{"TCP port", c.Port, 1, math.MaxUint16},
		{"port of the device", c.IBPort, 1, math.MaxUint8},
		{"GID index", c.GIDIndex, DefaultGID, math.MaxUint8},
		{"message size", c.Size, 0, math.MaxInt32},
		{"receive depth", c.RxDepth, 1, math.MaxInt32},
		{"number of iterations", c.Iters, 1, math.MaxInt32},
		{"service level", c.SL, 0, 15},
	} {
		if f.value < f.min || f.value > f.most {
			if f.min == DefaultGID {
				f.min = 0
			}
			return usage.Errorf("%s %d: allowed are %d to %d", f.name, f.value, f.min, f.most)
		}
	}
	switch c.MTU {
	case 256, 512, 1024, 2048, 4096:
		return nil
	}
	return usage.Errorf("path MTU %d: allowed are 256, 512, 1024, 2048 and 4096", c.MTU)
}

// Role is "server" or "client".
func (c *Config) Role() string {
	if c.Server == "" {
		return "server"
	}
	return "client"
}
