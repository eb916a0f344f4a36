//go:build linux && (amd64 || arm64)

package simproc_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/uverbstest/simproc"
)

func init() {
	programs["traffic"], programs["supervise traffic"] = traffic, superviseTraffic
}

const (
	depth   = 8 // messages under way, each way
	message = 4096
)

// traffic sends to another of its kind and receives from it, without end: it ends with an error.
// Given an address it calls the other there, otherwise it says where it is to be called.
func traffic() error {
	conn, err := meet(os.Args[1:])
	if err != nil {
		return err
	}
	defer conn.Close()
	d, err := uverbs.Open("mlx5_0", nil)
	if err != nil {
		return err
	}
	defer d.Close()
	pd, err := d.NewPD()
	if err != nil {
		return err
	}
	mem, err := uverbs.Alloc(2*message, nil)
	if err != nil {
		return err
	}
	mr, err := pd.Register(mem.Bytes(), uverbs.LocalWrite)
	if err != nil {
		return err
	}
	cq, err := d.NewCQ(4*depth, &uverbs.CQOptions{Events: true})
	if err != nil {
		return err
	}
	qp, err := pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: cq})
	if err != nil {
		return err
	}
	w, err := poll.NewWaiter(poll.Event{}, cq)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	receives, sends := qp.RecvQueue(), qp.SendQueue()
	const received, sent = 1, 2
	again := func(id uint64) error {
		if id == received {
			receives.Recv(received, mr.Span(0, message))
			return receives.Flush()
		}
		sends.Send(sent, mr.Span(message, message))
		return sends.Flush()
	}
	for range 2 * depth {
		if err := again(received); err != nil {
			return err
		}
	}
	// A slow program is sent more than it has receives for.
	if _, err := qp.HandshakeWith(ctx, conn, &uverbs.ConnectOptions{RNRRetries: uverbs.RetryForever}); err != nil {
		return err
	}
	for range depth {
		if err := again(sent); err != nil {
			return err
		}
	}
	wcs := make([]uverbs.WC, depth)
	for carried := 0; ; {
		n, err := w.Wait(ctx, wcs)
		if err != nil {
			return err
		}
		for _, wc := range wcs[:n] {
			if wc.Status != uverbs.StatusSuccess {
				return fmt.Errorf("request %d ended with: %v", wc.ID, wc.Status)
			}
			if err := again(wc.ID); err != nil {
				return err
			}
			if carried++; carried == 100 {
				fmt.Println("open", os.Getpid(), os.Getppid())
			}
		}
	}
}

// meet makes a connection to the other.
func meet(args []string) (net.Conn, error) {
	if len(args) > 0 {
		return net.Dial("tcp", args[0])
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	fmt.Println(l.Addr())
	return l.Accept()
}

// player is one of a pair that runs.
type player struct {
	cmd         *simproc.Cmd
	said        *bytes.Buffer
	out         *bufio.Reader
	close       func()
	pid, keeper int
}

// startPair starts two programs that send to each other, and returns when they do. Their output goes to
// pipes, which they hold open: Wait does not wait for who reads.
func startPair(s *simproc.Server) (pair [2]*player, err error) {
	var args []string
	for i := range pair {
		out, in, err := os.Pipe()
		if err != nil {
			return pair, err
		}
		p := &player{cmd: program(s, "traffic", args...), said: new(bytes.Buffer), out: bufio.NewReader(out), close: func() { out.Close() }}
		p.cmd.Stdout, p.cmd.Stderr = in, p.said
		err = p.cmd.Start()
		in.Close()
		if err != nil {
			return pair, err
		}
		pair[i] = p
		if i == 0 {
			line, err := p.out.ReadString('\n')
			if err != nil {
				return pair, fmt.Errorf("%w: %w: %s", err, p.cmd.Wait(), p.said)
			}
			args = []string{strings.TrimSpace(line)}
		}
	}
	for _, p := range pair {
		if p.pid, p.keeper, err = readPIDs(p.out); err != nil {
			return pair, fmt.Errorf("%w: %w: %s", err, p.cmd.Wait(), p.said)
		}
	}
	return pair, nil
}

// Whichever of two programs is killed while both send and receive, the other gets an error from
// its device and ends, and nothing is left of either.
func TestKilledInTraffic(t *testing.T) {
	forms(t, func(t *testing.T, noMount bool) {
		t.Setenv("TMPDIR", t.TempDir())
		m, s := serve(t, noMount)
		for victim, who := range []string{"server", "client"} {
			pair, err := startPair(s)
			if err != nil {
				t.Fatal(err)
			}
			if err := unix.Kill(pair[victim].pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			var exit *simproc.ExitError
			if err := pair[victim].cmd.Wait(); !errors.As(err, &exit) || exit.Signal != unix.SIGKILL {
				t.Errorf("the %s, killed: %v", who, err)
			}
			other := pair[1-victim]
			if err := other.cmd.Wait(); !errors.As(err, &exit) || exit.Code != 1 || !strings.Contains(other.said.String(), "request 2 ended with: ") {
				t.Errorf("the other than the %s: %v: %s", who, err, other.said)
			}
			for _, p := range pair {
				gone(t, p.pid)
				gone(t, p.keeper)
				p.close()
			}
			until(t, "the devices are closed", func() bool { return len(m.Device("mlx5_0").Objects()) == 0 && s.Stats().Open == 0 })
			noFiles(t, os.Getenv("TMPDIR"))
			noMounts(t)
		}
	})
}

// superviseTraffic serves a model to a pair, and says what it is.
func superviseTraffic() error {
	m, err := model.New(model.DeviceConfig{Name: "mlx5_0"})
	if err != nil {
		return err
	}
	s, err := simproc.Serve(m, &simproc.Options{NoMount: len(os.Args) > 1})
	if err != nil {
		return err
	}
	defer s.Close()
	pair, err := startPair(s)
	if err != nil {
		return err
	}
	for _, p := range pair {
		fmt.Println("open", p.pid, p.keeper)
	}
	for _, p := range pair {
		err = errors.Join(err, p.cmd.Wait())
	}
	return err
}

// When the server of two programs is killed while they send, both end, and nothing is left.
func TestKilledServerInTraffic(t *testing.T) {
	forms(t, func(t *testing.T, noMount bool) {
		serve(t, noMount) // skips if need be
		t.Setenv("TMPDIR", t.TempDir())
		c := exec.Command("/proc/self/exe")
		if noMount {
			c.Args = append(c.Args, "nomount")
		}
		c.Env = append(os.Environ(), programVar+"=supervise traffic")
		c.Stderr = os.Stderr
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(out)
		var all []int
		for range 2 {
			pid, keeper := pids(t, r)
			all = append(all, pid, keeper)
		}
		if err := c.Process.Kill(); err != nil {
			t.Error(err)
		}
		if _, err := io.Copy(io.Discard, r); err != nil {
			t.Error(err)
		}
		if err := c.Wait(); err == nil {
			t.Error("the server was not killed")
		}
		for _, pid := range all {
			gone(t, pid)
		}
		noFiles(t, os.Getenv("TMPDIR"))
		noMounts(t)
	})
}

// noMounts says whether the programs' mounts are only the programs'.
func noMounts(t *testing.T) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, "/dev/infiniband") || strings.Contains(line, "goverbs") {
			t.Errorf("mounted: %s", line)
		}
	}
}
