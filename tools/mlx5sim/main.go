// Mlx5sim runs programs on ConnectX devices in software: unmodified ones, in C or Go, on
// a machine without RDMA and without privileges.
//
//	mlx5sim run [flags] -- PROGRAM ARGS [--and PROGRAM ARGS]
//	mlx5sim referee [-run REGEXP] [-short] [-pyverbs]
//	mlx5sim differential [-n N] [-seed S] [-seeds K] [-json]
//	mlx5sim bench [-run REGEXP] [-quick] [-md | -json]
//
// The programs find the devices as they would find real ones, and reach one another over them.
// With -trace it says line by line what they ask for and what the devices do; with -pcap it
// writes the packets that a network would have carried, for Wireshark.
// Referee has rdma-core's programs, or its test suite, show that the devices are as they should be.
// Differential has a program on libibverbs and one on goverbs do the same, and compares every byte.
// Bench measures how long goverbs and libibverbs take to poll and to post.
// It takes Linux 5.19 or later on amd64 or arm64. What stands behind it is package
// uverbs/uverbstest/simproc.
package main

import (
	"fmt"
	"io"
	"os"
)

// Exit statuses, besides those of the programs.
const (
	exitViolations = 1 // the programs succeeded, and broke rules
	exitUsage      = 2 // other flags would help
	exitSystem     = 3 // this system cannot do it
	exitNotFound   = 127
	exitSignal     = 128 // and the number of the signal
)

const usage = `usage: mlx5sim run [flags] -- PROGRAM ARGS [--and PROGRAM ARGS]...

Runs programs on ConnectX devices in software. Each further program starts when the one
before it listens on a TCP port, has ended or has done neither for a time (-wait).

  mlx5sim run -- ibv_devinfo -v
  mlx5sim run -- ibv_rc_pingpong --and ibv_rc_pingpong localhost
  mlx5sim run -trace -pcap packets.pcap -- ibv_rc_pingpong --and ibv_rc_pingpong localhost

With -trace it says what programs ask for and what the devices do; with -pcap Wireshark
shows the packets of it.

mlx5sim run -h lists the flags. mlx5sim referee has rdma-core's own programs, or its test
suite, judge the devices; mlx5sim referee -h says how. mlx5sim bench measures goverbs and
libibverbs; mlx5sim bench -h says how. mlx5sim differential compares what the two do, byte
by byte; mlx5sim differential -h says how.
`

func main() { os.Exit(command(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// command runs the command that the arguments name.
func command(args []string, stdin *os.File, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, "mlx5sim: no command\n", usage)
		return exitUsage
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
		fmt.Fprint(stdout, usage)
		return 0
	case "run":
		return cmdRun(args[1:], stdin, stdout, stderr)
	case "referee":
		return cmdReferee(args[1:], stdout, stderr)
	case "differential":
		return cmdDifferential(args[1:], stdout, stderr)
	case twinName:
		return cmdTwin(stdin, stdout, stderr)
	case "bench":
		return cmdBench(args[1:], stdin, stdout, stderr)
	}
	fmt.Fprintf(stderr, "mlx5sim: unknown command %q\n%s", args[0], usage)
	return exitUsage
}
