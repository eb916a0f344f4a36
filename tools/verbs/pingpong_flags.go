package main

import (
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/goverbs/goverbs/tools/verbs/internal/pingpong"
)

// errHelp is that of -h: the flags have been printed.
var errHelp = flag.ErrHelp

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
`

// parsePingpong reads the flags and, between or after them, the server's name.
func parsePingpong(args []string, help io.Writer) (cfg pingpong.Config, asJSON bool, err error) {
	cfg = pingpong.Default()
	fs := flag.NewFlagSet("pingpong", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	short := map[byte]bool{} // one-letter flags: whether they take a value
	number := func(to *int, name, long string) {
		fs.IntVar(to, name, *to, "")
		fs.IntVar(to, long, *to, "")
		short[name[0]] = true
	}
	text := func(to *string, name, long string) {
		fs.StringVar(to, name, *to, "")
		fs.StringVar(to, long, *to, "")
		short[name[0]] = true
	}
	toggle := func(to *bool, name, long string) {
		fs.BoolVar(to, name, *to, "")
		fs.BoolVar(to, long, *to, "")
		short[name[0]] = false
	}
	number(&cfg.Port, "p", "port")
	text(&cfg.Device, "d", "ib-dev")
	number(&cfg.IBPort, "i", "ib-port")
	number(&cfg.Size, "s", "size")
	number(&cfg.MTU, "m", "mtu")
	number(&cfg.RxDepth, "r", "rx-depth")
	number(&cfg.Iters, "n", "iters")
	number(&cfg.SL, "l", "sl")
	toggle(&cfg.Events, "e", "events")
	number(&cfg.GIDIndex, "g", "gid-idx")
	toggle(&cfg.Check, "c", "chk")
	fs.BoolVar(&asJSON, "json", false, "")

	var hosts []string
	rest := splitShort(args, short, fs)
	for len(rest) > 0 {
		if err := fs.Parse(rest); err == flag.ErrHelp {
			fmt.Fprint(help, pingpongUsage)
			return cfg, false, errHelp
		} else if err != nil {
			return cfg, false, pingpong.BadConfig("%s", err)
		}
		n := len(rest) - fs.NArg()
		if n > 0 && rest[n-1] == "--" {
			hosts = append(hosts, fs.Args()...)
			break
		}
		if rest = fs.Args(); len(rest) > 0 {
			hosts, rest = append(hosts, rest[0]), rest[1:]
		}
	}
	return cfg, asJSON, finishPingpong(&cfg, hosts, fs)
}

// finishPingpong checks what flags cannot.
func finishPingpong(cfg *pingpong.Config, hosts []string, fs *flag.FlagSet) error {
	switch {
	case len(hosts) > 1:
		return pingpong.BadConfig("one server at most, not %s", strings.Join(hosts, " and "))
	case len(hosts) == 1 && hosts[0] == "":
		return pingpong.BadConfig("the server's name is empty")
	case len(hosts) == 1:
		cfg.Server = hosts[0]
	}
	named := false
	fs.Visit(func(f *flag.Flag) { named = named || f.Name == "d" || f.Name == "ib-dev" })
	if named && cfg.Device == "" {
		return pingpong.BadConfig("-d: the device's name is empty")
	}
	return cfg.Validate()
}

// splitShort takes apart what getopt allows and package flag does not: -s64 and
// -ec, as long as no flag has that name.
func splitShort(args []string, short map[byte]bool, fs *flag.FlagSet) []string {
	var out []string
	value := false // the argument belongs to the flag before
	for i, arg := range args {
		if value {
			out, value = append(out, arg), false
			continue
		}
		if arg == "--" {
			return append(out, args[i:]...)
		}
		if len(arg) < 2 || arg[0] != '-' {
			out = append(out, arg)
			continue
		}
		name, _, assigned := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if f := fs.Lookup(name); f != nil || arg[1] == '-' {
			b, ok := flagValue(f).(interface{ IsBoolFlag() bool })
			value = f != nil && !assigned && !(ok && b.IsBoolFlag())
			out = append(out, arg)
			continue
		}
		var parts []string
		parts, value = takeApart(arg, short)
		out = append(out, parts...)
	}
	return out
}

func flagValue(f *flag.Flag) flag.Value {
	if f == nil {
		return nil
	}
	return f.Value
}

// takeApart splits one argument of one-letter flags. It returns the argument as
// it is when a letter is none. value is whether the last flag still wants one.
func takeApart(arg string, short map[byte]bool) (parts []string, value bool) {
	for i := 1; i < len(arg); i++ {
		takes, ok := short[arg[i]]
		if !ok {
			return []string{arg}, false
		}
		parts = append(parts, "-"+arg[i:i+1])
		if takes {
			if i+1 == len(arg) {
				return parts, true
			}
			return append(parts, arg[i+1:]), false
		}
	}
	return parts, false
}
