package mlx5

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// hot are the functions of the hot path of completions with the calls that may stand
// in them. What loops over completions calls nothing at all; what stands around it
// goes once for a batch, or for a run of completions of one kind.
var hot = map[string][]string{
	"mlx5.scan":     {},
	"mlx5.sends":    {},
	"mlx5.receives": {},
	"mlx5.bodies": {
		"mlx5.scan", "mlx5.sends", "mlx5.receives",
		"mlx5.(*CQ).skip",   // quiet requests
		"mlx5.(*CQ).slowly", // failures, what is out of order, what is dropped
	},
	"mlx5.(*CQ).numbered":   {"mlx5.(*CQ).slowly", "mlx5.(*consumer).scan"},
	"mlx5.(*consumer).scan": {"mlx5.scan"},
	"mlx5.(*CQ).Poll":       {"mlx5.bodies", "mlx5.(*CQ).numbered"},
	"mlx5.(*consumer).give": {},
	"mlx5.(*CQ).Empty":      {},
	"cq.(*Slot).Sent":       {},
	"cq.(*Slot).Received":   {},
	"cq.(*Requests).Fill":   {},
	"cq.(*Requests).Pop":    {},
}

// anywhere are calls that may stand in all but the loops: stack growth, and bounds
// checks that fail.
var anywhere = []string{"runtime.morestack", "runtime.panicIndex", "runtime.panicBounds", "runtime.panicSlice"}

// banned are instructions that the hot path does without.
var banned = regexp.MustCompile(`^(LOCK|XCHG|XADD|CMPXCHG|MFENCE|LFENCE|SFENCE|PAUSE|CPUID)`)

var (
	asmFunc = regexp.MustCompile(`^github\.com/goverbs/goverbs/(\S+?)(\[\S+)? STEXT`)
	asmInst = regexp.MustCompile(`^\t0x[0-9a-f]+ \d+ \((.*)\)\t(\S+)(?:\t(.*))?$`)
)

// TestInstructions compiles the package again, whatever flags the test itself
// was built with, and reads what became of the hot path: no locked instruction,
// no fence, no write barrier, no call that is not named above.
func TestInstructions(t *testing.T) {
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skipf("declared skip: there is no go command here to compile with: %v", err)
	}
	const module = "github.com/goverbs/goverbs/"
	cmd := exec.Command(tool, "build", "-gcflags="+module+"mlx5=-S", "-gcflags="+module+"cq=-S", module+"mlx5")
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOARCH=amd64", "GOAMD64=v1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	seen := map[string]int{}
	name := ""
	for line := range strings.Lines(string(out)) {
		line = strings.TrimRight(line, "\n")
		if !strings.HasPrefix(line, "\t") { // another symbol begins
			name = ""
			// What has a type parameter is compiled for shapes of types. That of
			// a type is a wrapper, and does nothing but call that of its shape.
			if m := asmFunc.FindStringSubmatch(line); m != nil && (m[2] == "" || strings.HasPrefix(m[2], "[go.shape")) {
				name = m[1]
			}
			continue
		}
		allowed, ok := hot[name]
		m := asmInst.FindStringSubmatch(line)
		if !ok || m == nil {
			continue
		}
		seen[name]++
		where, op, args := m[1], m[2], m[3]
		// The compiler spells NOP as an exchange of AX with itself.
		if banned.MatchString(op) && args != "AX, AX" {
			t.Errorf("%s: %s %s at %s", name, op, args, where)
		}
		if strings.Contains(args, "gcWriteBarrier") || strings.Contains(args, "writeBarrier") {
			t.Errorf("%s: a write barrier at %s: it stores a pointer", name, where)
		} else if strings.HasPrefix(op, "CALL") && !calls(args, allowed) {
			t.Errorf("%s: CALL %s at %s", name, args, where)
		}
	}
	for name := range hot {
		if seen[name] < 3 {
			t.Errorf("%s: %d instructions found; the compiler's output was not understood", name, seen[name])
		}
	}
}

// calls says whether the target of a call is one of the allowed ones.
func calls(target string, allowed []string) bool {
	target = strings.TrimPrefix(target, "github.com/goverbs/goverbs/")
	target, _, _ = strings.Cut(target, "(SB)")
	target, _, _ = strings.Cut(target, "[go.shape")
	for _, a := range allowed {
		if target == a {
			return true
		}
	}
	for _, a := range anywhere {
		if len(allowed) > 0 && strings.HasPrefix(target, a) {
			return true
		}
	}
	return false
}
