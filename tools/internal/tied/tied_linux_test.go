package tied_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/tools/internal/tied"
)

// roleVar makes this executable one of the programs below.
const roleVar = "GOVERBS_TIED_ROLE"

// patience is how long something may take that is sure to come.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	switch os.Getenv(roleVar) {
	case "":
		os.Exit(m.Run())
	case "parent":
		if err := parent(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "child":
		child()
	}
}

func program(role string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleVar+"="+role)
	cmd.Stderr = os.Stderr
	return cmd
}

func init() {
	if os.Getenv(roleVar) != "" {
		runtime.LockOSThread() // the first thread, which does not end with a goroutine
	}
}

// parent starts a child from a thread that then ends, says that it has, and waits for what
// does not come. The child has its input and its output.
func parent() error {
	cmd := program("child")
	cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout
	started, thread := make(chan error), 0
	go func() {
		runtime.LockOSThread() // and so the thread ends with the goroutine
		thread = syscall.Gettid()
		started <- tied.Start(cmd)
	}()
	if err := <-started; err != nil {
		return err
	}
	for {
		if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", thread)); errors.Is(err, os.ErrNotExist) {
			break
		} else if err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	fmt.Println("the thread is gone")
	return cmd.Wait()
}

// child answers each line until nobody is left to ask. Then it waits to be killed, but not for
// ever.
func child() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(lines.Text())
	}
	time.Sleep(2 * patience)
}

// A program goes with the process that started it, and not before: in particular not with the
// thread that asked for it.
func TestChildGoesWithItsParent(t *testing.T) {
	cmd := program("parent")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	cmd.Stdout = write
	err = cmd.Start()
	write.Close() // the end comes when both processes are gone
	if err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if err := read.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(read)
	expect := func(want string) {
		t.Helper()
		if got, err := out.ReadString('\n'); err != nil || got != want+"\n" {
			t.Fatalf("the child says %q (%v), want %q", got, err, want)
		}
	}
	expect("the thread is gone")
	for _, line := range []string{"once", "and again"} {
		if _, err := fmt.Fprintln(in, line); err != nil {
			t.Fatal(err)
		}
		expect(line)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(out); err != nil || len(rest) > 0 {
		t.Errorf("the parent is gone, and the child is not: %q, %v", rest, err)
	}
}

// Errors and results are those of exec.Cmd.
func TestRun(t *testing.T) {
	if err := tied.Run(exec.Command("sh", "-c", "exit 0")); err != nil {
		t.Error(err)
	}
	var exit *exec.ExitError
	if err := tied.Run(exec.Command("sh", "-c", "exit 7")); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("exit 7: %v", err)
	}
	if err := tied.Run(exec.Command("/no/such/program")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no such program: %v", err)
	}
}
