package planted

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// holdMark makes this program one that holds protection domains: as many as it says, or all
// that there are for 0.
const holdMark = "GOVERBS_PLANTED_HOLD"

func TestMain(m *testing.M) {
	if s := os.Getenv(holdMark); s != "" {
		if err := holder(s); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// holder holds protection domains until its input ends.
func holder(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil {
		return err
	}
	d, err := uverbs.Open(device, nil)
	if err != nil {
		return err
	}
	defer d.Close()
	for made := 0; n == 0 || made < n; made++ {
		_, err := d.NewPD()
		// The device of Linux 5.10 says EINVAL when it has no more.
		if n == 0 && made > 0 && (errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.EINVAL)) {
			break
		}
		if err != nil {
			return err
		}
	}
	fmt.Println("held")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// hold starts a holder and returns what ends it.
func hold(t *testing.T, n int, as func(cmd *exec.Cmd)) (end func()) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), holdMark+"="+strconv.Itoa(n))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if as != nil {
		as(cmd)
	}
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("the holder says %q, %v; it ended with %v", line, err, cmd.Wait())
	}
	return func() {
		must(t, in.Close())
		must(t, cmd.Wait())
	}
}
