package main

import (
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/goverbs/goverbs/tools/verbs/internal/pingpong"
	"github.com/goverbs/goverbs/tools/verbs/internal/usage"
)

const pingpongUsage = `usage: verbs pingpong [flags]         wait for a client
       verbs pingpong [flags] HOST    play with the server on HOST

The other side may be rdma-core's ibv_rc_pingpong. With -d sim0 or sim1, a ConnectX
in software, both sides play in this process. Flags, in ibv_rc_pingpong's letters:
  -p, --port PORT         TCP port of the server (18515)
  -d, --ib-dev DEVICE     RDMA device (the first that can be opened)
  -i, --ib-port PORT      port of the device (1)
  -s, --size BYTES        length of a message (4096)
  -m, --mtu BYTES         path MTU (1024)
  -r, --rx-depth NUMBER   receives to post at a time (500)
  -n, --iters NUMBER      messages that each side sends (1000)
  -l, --sl LEVEL          service level (0)
  -e, --events            sleep until there is a completion, do not poll
  -g, --gid-idx INDEX     local GID (RoCE v2, IPv4 before others; none on InfiniBand)
  -c, --chk               check what every message carries
  -json                   print one JSON object in place of text
Exit status: 0, 1 when something went wrong, 2 for wrong flags and unknown devices.
Examples:
  verbs pingpong -d sim0                    both sides here, without a device
  verbs pingpong -d mlx5_0 -c               on one host, and on the other:
  verbs pingpong -d mlx5_0 -c 10.0.0.1
`

// parsePingpong reads the flags and, between or after them, the server's name.
func parsePingpong(args []string, help io.Writer) (cfg pingpong.Config, asJSON bool, err error) {
	cfg = pingpong.Default()
	f := newGetopt("verbs pingpong")
	f.number(&cfg.Port, "p", "port")
	f.word(&cfg.Device, "d", "ib-dev")
	f.number(&cfg.IBPort, "i", "ib-port")
	f.number(&cfg.Size, "s", "size")
	f.number(&cfg.MTU, "m", "mtu")
	f.number(&cfg.RxDepth, "r", "rx-depth")
	f.number(&cfg.Iters, "n", "iters")
	f.number(&cfg.SL, "l", "sl")
	f.toggle(&cfg.Events, "e", "events")
	f.number(&cfg.GIDIndex, "g", "gid-idx")
	f.toggle(&cfg.Check, "c", "chk")
	f.toggle(&asJSON, "", "json")
	hosts, err := f.parse(args)
	if err == flag.ErrHelp {
		fmt.Fprint(help, pingpongUsage)
		return cfg, false, errHelp
	} else if err != nil {
		return cfg, false, usage.Errorf("%s", err)
	}
	return cfg, asJSON, finishPingpong(&cfg, hosts)
}

// finishPingpong checks what flags cannot.
func finishPingpong(cfg *pingpong.Config, hosts []string) error {
	switch {
	case len(hosts) > 1:
		return usage.Errorf("one server at most, not %s", strings.Join(hosts, " and "))
	case len(hosts) == 1 && hosts[0] == "":
		return usage.Errorf("the server's name is empty")
	case len(hosts) == 1:
		cfg.Server = hosts[0]
	}
	return cfg.Validate()
}
