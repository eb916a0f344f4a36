package pingpong

import (
	"errors"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/tools/verbs/internal/usage"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/sim"
)

func TestValidate(t *testing.T) {
	if c := Default(); c.Validate() != nil {
		t.Fatal(c.Validate())
	}
	for _, test := range []struct {
		change func(*Config)
		want   []string
	}{
		{func(c *Config) { c.Port = 0 }, []string{"TCP port 0", "1 to 65535"}},
		{func(c *Config) { c.Port = 65536 }, []string{"65536"}},
		{func(c *Config) { c.IBPort = 0 }, []string{"port of the device 0", "1 to 255"}},
		{func(c *Config) { c.IBPort = -1 }, []string{"-1"}},
		{func(c *Config) { c.GIDIndex = -2 }, []string{"GID index -2", "0 to 255"}},
		{func(c *Config) { c.GIDIndex = 256 }, []string{"256"}},
		{func(c *Config) { c.Size = -1 }, []string{"message size -1", "0 to"}},
		{func(c *Config) { c.RxDepth = 0 }, []string{"receive depth 0"}},
		{func(c *Config) { c.Iters = 0 }, []string{"iterations 0"}},
		{func(c *Config) { c.Iters = -5 }, []string{"-5"}},
		{func(c *Config) { c.SL = 16 }, []string{"service level 16", "0 to 15"}},
		{func(c *Config) { c.SL = -1 }, []string{"service level -1"}},
		{func(c *Config) { c.MTU = 1500 }, []string{"MTU 1500", "256, 512, 1024, 2048 and 4096"}},
	} {
		c := Default()
		test.change(&c)
		err := c.Validate()
		var bad *usage.Error
		if !errors.As(err, &bad) {
			t.Errorf("%+v: error %v, want a *usage.Error", c, err)
			continue
		}
		for _, part := range test.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q lacks %q", err, part)
			}
		}
		if g, err := Open(device(t), c); g != nil || !errors.As(err, &bad) {
			t.Errorf("Open(%+v): %v, %v", c, g, err)
		}
	}
}

func TestRole(t *testing.T) {
	c := Default()
	if c.Role() != "server" {
		t.Error(c.Role())
	}
	if c.Server = "10.0.0.1"; c.Role() != "client" {
		t.Error(c.Role())
	}
}

// device is one of the model.
func device(t *testing.T) *uverbs.Device {
	t.Helper()
	f, err := sim.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := f.Open("sim0", nil)
	if err != nil {
		t.Fatal(err)
	}
	return dev
}
