package rxe

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// hot are the functions of the hot path with the calls that may stand in them.
// Stack growth and failed bounds checks may stand in all.
var hot = map[string][]string{
	"rxe.(*CQ).Poll": {
		"rxe.(*CQ).drop",          // counts what is thrown away
		"rxe.invalidated",         // tells of a window that was closed
		"rxe.(*CQ).shared",        // what several pollers may end
		"cq.(*Requests).Complete", // what is out of order
		"cq.(*Endpoint).Fail",     // failures
	},
	"rxe.(*CQ).Empty": {},
	// putArm is for atomics, windows and flushes, which go by themselves.
	"rxe.(*SQ).Put":            {"runtime.memmove", "runtime.gopanic", "rxe.putArm"},
	"rxe.(*SQ).Begin":          {},
	"rxe.(*SQ).End":            {},
	"rxe.(*SQ).Publish":        {},
	"rxe.(*SQ).Rollback":       {},
	"rxe.(*SQ).Space":          {},
	"rxe.(*RQ).Put":            {"runtime.gopanic"},
	"rxe.(*RQ).Publish":        {},
	"rxe.(*RQ).Rollback":       {},
	"rxe.(*RQ).Space":          {},
	"cq.(*Requests).Complete":  {},
	"cq.(*Requests).Oldest":    {},
	"cq.(*Requests).EndOldest": {},
}

var anywhere = []string{"runtime.morestack", "runtime.panicIndex", "runtime.panicBounds", "runtime.panicunsafeslicelen", "runtime.panicSlice"}

// banned are instructions that the hot path does without.
var banned = regexp.MustCompile(`^(LOCK|XCHG|XADD|CMPXCHG|MFENCE|LFENCE|SFENCE|PAUSE|CPUID)`)

var (
	asmFunc = regexp.MustCompile(`^github\.com/goverbs/goverbs/(\S+) STEXT`)
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
	cmd := exec.Command(tool, "build", "-gcflags="+module+"rxe=-S", "-gcflags="+module+"cq=-S", module+"rxe")
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOARCH=amd64")
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
			if m := asmFunc.FindStringSubmatch(line); m != nil {
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
	for _, a := range allowed {
		if strings.HasPrefix(target, a+"(SB)") {
			return true
		}
	}
	for _, a := range anywhere {
		if strings.HasPrefix(target, a) {
			return true
		}
	}
	return false
}
