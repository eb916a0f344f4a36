//go:build linux && (amd64 || arm64)

package simproc_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/uverbstest/simproc"
)

// The programs that the tests run are this executable, told by a variable which.
const programVar = "GOVERBS_SIMPROC_PROGRAM"

var programs = map[string]func() error{
	"list": list, "loopback": loopback, "hold": hold, "supervise": supervise, "foreign": foreign, "hidden": hidden, "armed": armed, "reopen": reopen,
}

func TestMain(m *testing.M) {
	p, ok := programs[os.Getenv(programVar)]
	if !ok {
		// Programs with a race detector would wait a second before they end.
		os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
		os.Exit(m.Run())
	}
	if err := p(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// patience is how long something may take that is sure to come.
const patience = 3 * time.Minute

// list prints the devices, their ports and what they can do.
func list() error {
	devices, err := uverbs.Devices()
	if err != nil {
		return err
	}
	for _, i := range devices {
		d, err := uverbs.Open(i.Name, nil)
		if err != nil {
			return err
		}
		fmt.Printf("%s %s %s firmware %s:", i.UverbsName, i.Name, i.Driver, i.Firmware)
		for n := 1; n <= i.Ports; n++ {
			p, err := d.PortAttr(n)
			if err != nil {
				return err
			}
			fmt.Printf(" %v %v", p.LinkLayer, p.State)
		}
		fmt.Println()
		if err := d.Close(); err != nil {
			return err
		}
	}
	return nil
}

// loopback connects two queue pairs of a device and sends messages, waiting for
// events.
func loopback() error {
	d, err := uverbs.Open(os.Args[1], nil)
	if err != nil {
		return err
	}
	defer d.Close()
	pd, err := d.NewPD()
	if err != nil {
		return err
	}
	var ends [2]struct {
		mem *uverbs.Memory
		mr  *uverbs.MR
		cq  *uverbs.CQ
		qp  *uverbs.QP
		w   *poll.Waiter
	}
	for i := range ends {
		e := &ends[i]
		if e.mem, err = uverbs.Alloc(64<<10, nil); err != nil {
			return err
		}
		if e.mr, err = pd.Register(e.mem.Bytes(), uverbs.LocalWrite); err != nil {
			return err
		}
		if e.cq, err = d.NewCQ(64, &uverbs.CQOptions{Events: true}); err != nil {
			return err
		}
		if e.qp, err = pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: e.cq}); err != nil {
			return err
		}
		if e.w, err = poll.NewWaiter(poll.Event{}, e.cq); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for i := range ends {
		if err := ends[i].qp.Connect(ctx, ends[1-i].qp.Endpoint(), nil); err != nil {
			return err
		}
	}
	next := func(i int) error {
		var wcs [1]uverbs.WC
		if _, err := ends[i].w.Wait(ctx, wcs[:]); err != nil {
			return err
		}
		if wcs[0].Status != uverbs.StatusSuccess {
			return fmt.Errorf("end %d: %+v", i, wcs[0])
		}
		return nil
	}
	const size = 3000
	for round := range 20 {
		from, to := round%2, 1-round%2
		ends[to].qp.RecvQueue().Recv(1, ends[to].mr.Span(0, size))
		if err := ends[to].qp.RecvQueue().Flush(); err != nil {
			return err
		}
		want := bytes.Repeat([]byte{byte(round + 1)}, size)
		copy(ends[from].mem.Bytes(), want)
		ends[from].qp.SendQueue().Send(2, ends[from].mr.Span(0, size))
		if err := ends[from].qp.SendQueue().Flush(); err != nil {
			return err
		}
		for _, i := range []int{from, to} {
			if err := next(i); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
		}
		if !bytes.Equal(ends[to].mem.Bytes()[:size], want) {
			return fmt.Errorf("round %d: other bytes arrived", round)
		}
	}
	fmt.Println("20 rounds")
	return nil
}

// hold opens a device, says so and keeps it until its input ends.
func hold() error {
	d, err := uverbs.Open("mlx5_0", nil)
	if err != nil {
		return err
	}
	if _, err := d.NewPD(); err != nil {
		return err
	}
	fmt.Println("open", os.Getpid(), os.Getppid())
	_, err = os.Stdin.Read(make([]byte, 1))
	if errors.Is(err, fs.ErrClosed) {
		return err
	}
	return d.Close()
}

// supervise serves a model to hold, and says what hold says.
func supervise() error {
	m, err := model.New(model.DeviceConfig{Name: "mlx5_0"})
	if err != nil {
		return err
	}
	s, err := simproc.Serve(m, &simproc.Options{NoMount: len(os.Args) > 1})
	if err != nil {
		return err
	}
	defer s.Close()
	c := s.Command("/proc/self/exe")
	c.Env = append(os.Environ(), programVar+"=hold")
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	return c.Run()
}

// foreign uses the device of its parent, and otherwise is such a parent.
func foreign() error {
	const fd = 3
	if len(os.Args) > 1 {
		var request [24]byte
		request[0] = 24
		return ioctl(fd, request[:])
	}
	d, err := uverbs.Open("mlx5_0", nil)
	if err != nil {
		return err
	}
	defer d.Close()
	links, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, l := range links {
		target, err := os.Readlink("/proc/self/fd/" + l.Name())
		if err != nil || !strings.Contains(target, "memfd:goverbs-simproc") {
			continue
		}
		var n int
		if _, err := fmt.Sscan(l.Name(), &n); err != nil {
			return err
		}
		var stat unix.Stat_t // which libibverbs asks when it imports a device
		if err := unix.Fstat(n, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFCHR {
			return fmt.Errorf("the device file is of mode %o, %v", stat.Mode, err)
		}
		dup, err := unix.Dup(n) // of which the child gets one that is not closed
		if err != nil {
			return err
		}
		p, err := os.StartProcess("/proc/self/exe", []string{"foreign", "child"}, &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, os.NewFile(uintptr(dup), "device")}})
		if err != nil {
			return err
		}
		st, err := p.Wait()
		if err == nil && st.ExitCode() != 1 {
			err = fmt.Errorf("the child: %v", st)
		}
		return err
	}
	return errors.New("no descriptor of a device")
}

// armed destroys completion queues right after the doorbell that arms them.
func armed() error {
	d, err := uverbs.Open("mlx5_0", nil)
	if err != nil {
		return err
	}
	for range 50 {
		q, err := d.NewCQ(16, &uverbs.CQOptions{Events: true})
		if err != nil {
			return err
		}
		if err := q.Arm(false); err != nil {
			return err
		}
		if err := q.Close(); err != nil {
			return err
		}
	}
	return d.Close()
}

// reopen opens a device file and one of /sys again and again, and looks whether they are
// what it has opened.
func reopen() error {
	for round := range 300 {
		for path, typ := range map[string]fs.FileMode{"/dev/infiniband/uverbs0": fs.ModeDevice | fs.ModeCharDevice, "/sys/class/infiniband/mlx5_0/node_guid": 0} {
			f, err := os.Open(path)
			if err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
			st, err := f.Stat()
			if err != nil || st.Mode().Type() != typ {
				return fmt.Errorf("round %d: %s is file %d, %v, %v", round, path, f.Fd(), st, err)
			}
			if err := f.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

// hidden looks for what the program must not see of the machine.
func hidden() error {
	for _, path := range []string{"/dev/infiniband/uverbs7", "/dev/infiniband/rdma_cm", "/sys/class/infiniband/none", "/sys/class/infiniband_mad"} {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("stat %s: %v", path, err)
		}
		if f, err := os.Open(path); !errors.Is(err, fs.ErrNotExist) {
			f.Close()
			return fmt.Errorf("open %s: %v", path, err)
		}
	}
	if f, err := os.OpenFile("/sys/class/infiniband/mlx5_0/node_guid", os.O_WRONLY, 0); err == nil && os.Getuid() != 0 {
		f.Close()
		return errors.New("/sys can be written")
	}
	for path, typ := range map[string]fs.FileMode{
		"/dev/infiniband/uverbs0": fs.ModeDevice | fs.ModeCharDevice, "/sys/class/infiniband/mlx5_0": fs.ModeDir,
		"/sys/class/infiniband/mlx5_0/device/driver": fs.ModeSymlink, "/sys/class/infiniband/../infiniband/mlx5_0/node_guid": 0,
		"/dev/null": fs.ModeDevice | fs.ModeCharDevice, "/sys/class/net/lo": fs.ModeSymlink, "/sys/class": fs.ModeDir,
	} {
		if st, err := os.Lstat(path); err != nil || st.Mode().Type() != typ && path != "/sys/class/net/lo" {
			return fmt.Errorf("%s: %v, %v", path, st, err)
		}
	}
	// An ioctl of that number on another file is the kernel's.
	f, err := os.Open("/dev/zero")
	if err != nil {
		return err
	}
	defer f.Close()
	if err := ioctl(int(f.Fd()), make([]byte, 24)); err != unix.ENOTTY {
		return fmt.Errorf("the ioctl on /dev/zero: %v", err)
	}
	if err := ioctl(1000, make([]byte, 24)); err != unix.EBADF {
		return fmt.Errorf("the ioctl on no file: %v", err)
	}
	if fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_RDMA); err != unix.EPROTONOSUPPORT {
		unix.Close(fd)
		return fmt.Errorf("RDMA netlink: %v", err)
	}
	return nil
}

// pids reads the line of hold.
func pids(t *testing.T, r *bufio.Reader) (program, keeper int) {
	t.Helper()
	program, keeper, err := readPIDs(r)
	if err != nil {
		t.Fatal(err)
	}
	return program, keeper
}

func readPIDs(r *bufio.Reader) (program, keeper int, err error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, 0, err
	}
	if _, err := fmt.Sscanf(line, "open %d %d", &program, &keeper); err != nil {
		return 0, 0, fmt.Errorf("%q: %w", line, err)
	}
	return program, keeper, nil
}
