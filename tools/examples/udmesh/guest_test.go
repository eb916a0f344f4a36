package main

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/goverbs/goverbs/tools/examples/internal/run"
)

func TestMain(m *testing.M) { run.Main(m, main) }

// Three nodes: the later ones ping those before them, each pings itself.
func TestGuestMesh(t *testing.T) {
	run.NeedDevice(t)
	addrs := []string{"127.0.0.1:7473", "127.0.0.1:7474", "127.0.0.1:7475"}
	answered := regexp.MustCompile(`(127[^ ]*): ([0-9]+) of 20 pings, [0-9.]+[mµ]?s each`)
	type started struct {
		cmd *exec.Cmd
		out *bytes.Buffer
	}
	var nodes []started
	for i := range addrs {
		cmd := run.Program(append([]string{"-listen", addrs[i], "-n", "20"}, addrs[:i+1]...)...)
		pipe, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer cmd.Process.Kill()
		out := new(bytes.Buffer)
		buf := make([]byte, 4096)
		for len(answered.FindAll(out.Bytes(), -1)) < i+1 {
			n, err := pipe.Read(buf)
			out.Write(buf[:n])
			if err != nil {
				t.Fatalf("node %d: %v:\n%s", i, err, out)
			}
		}
		nodes = append(nodes, started{cmd, out})
	}
	for i, n := range nodes {
		for _, m := range answered.FindAllStringSubmatch(n.out.String(), -1) {
			// Datagrams may be lost, but not on one machine, and not many.
			if m[2] < "10" || len(m[2]) != 2 {
				t.Errorf("node %d: %s", i, m[0])
			}
		}
		run.Interrupt(t, n.cmd)
	}
}
