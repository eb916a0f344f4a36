package uverbs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// Signals at every call of whole lives into a real kernel, also many in a row: the
// program sees the same, and the kernel has as many objects at most and none in the
// end.
//
// GOVERBS_ROUNDS sets how many calls are interrupted alone, one after another.
func TestGuestInterrupted(t *testing.T) {
	const report, lives = "GOVERBS_TEST_REPORT", "GOVERBS_TEST_LIVES"
	if path := os.Getenv(report); path != "" {
		n, err := strconv.Atoi(os.Getenv(lives))
		if err != nil {
			t.Fatal(err)
		}
		liveAndReport(t, path, n)
		return
	}
	guestSystem(t).onMachine(t, "it makes no system calls that a signal could interrupt")
	path := filepath.Join(t.TempDir(), "report")
	run := func(n int, times func(n int) int) (calls, interrupted int, told string) {
		t.Helper()
		cmd := exec.Command(os.Args[0], "-test.run=^TestGuestInterrupted$")
		cmd.Env = append(os.Environ(), report+"="+path, lives+"="+strconv.Itoa(n))
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		calls, interrupted = runInterrupted(t, cmd, times)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatalf("%v; the program said %s", err, out.String())
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		return calls, interrupted, string(b)
	}
	calls, n, calm := run(1, func(int) int { return 0 })
	if calls < 80 || n != 0 {
		t.Fatalf("%d calls, %d interrupted", calls, n)
	}
	for _, times := range []int{1, 5} {
		calls, n, told := run(1, func(int) int { return times })
		if n < times*calls*9/10 || told != calm {
			t.Errorf("all %d calls interrupted, %d times: the lives\n%s\ninstead of\n%s", calls, n, told, calm)
		}
		t.Logf("%d calls, interrupted %d times", calls, n)
	}
	// In each life another call: one later than in the one before.
	rounds := uverbs.RoundsOr(t, 5)
	_, n, told := run(rounds, func(n int) int {
		if n%(calls+1) == 0 {
			return 1
		}
		return 0
	})
	if n < rounds/2 || told != calm {
		t.Errorf("%d calls interrupted one by one: the lives\n%s\ninstead of\n%s", n, told, calm)
	}
	t.Logf("%d calls interrupted alone", n)
}

// liveAndReport lives n whole lives, which all have to be the same, and writes what
// they were like.
func liveAndReport(t *testing.T, path string, n int) {
	s := guestSystem(t)
	before := s.objects(t)
	var objects string
	life := uverbs.NewWholeLife(
		func() (*uverbs.Device, error) { return s.open(s.name) },
		func(n int) (*uverbs.Memory, error) { return uverbs.Alloc(n, nil) },
		func() { objects = fmt.Sprint(s.objects(t)) },
	)
	var report string
	for i := range n {
		story, _, err := life.Live(false)
		if err != nil {
			t.Fatalf("life %d: %v", i, err)
		}
		this := strings.Join(story, "\n") + "\n" + objects + "\n" + fmt.Sprint(before, s.objects(t))
		if i > 0 && this != report {
			t.Fatalf("life %d:\n%s\nthose before:\n%s", i, this, report)
		}
		report = this
	}
	if err := os.WriteFile(path, []byte(report), 0o600); err != nil {
		t.Fatal(err)
	}
}
