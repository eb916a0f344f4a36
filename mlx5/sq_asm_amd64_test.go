package mlx5

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// sendHot are the functions on the way of a request to the device, with the calls
// that may stand in them.
var sendHot = map[string][]string{
	"mlx5.(*SQ).Put": {"runtime.memmove", "runtime.gopanic", "mlx5.(*SQ).putInline", "mlx5.(*wqes).copy",
		// Operations that are not the common ones.
		"mlx5.(*SQ).putAddress", "mlx5.(*SQ).putAtomic", "mlx5.(*SQ).putWindow"},
	"mlx5.(*SQ).putAddress": {"mlx5.(*AddressVectors).get"},
	"mlx5.(*SQ).Publish":    {"mlx5.(*bell).told", "mlx5.(*bell).ring"},
	"mlx5.(*SQ).Rollback":   {},
	// The stores to a register are leaf functions of their own.
	"mlx5.(*bell).ring":       {"mlx5/internal/mmio.storeDoorbell64", "mlx5/internal/mmio.storeWC", "mlx5/internal/mmio.copyWC"},
	"mlx5.(*RQ).Put":          {"runtime.gopanic", "mlx5.(*wqes).putReceive"},
	"mlx5.(*wqes).putReceive": {},
	"mlx5.(*RQ).Publish":      {},
}

var (
	sendAnywhere = []string{"runtime.morestack", "runtime.panicIndex", "runtime.panicBounds", "runtime.panicSlice", "runtime.panicunsafeslice"}
	sendBanned   = regexp.MustCompile(`^(LOCK|XCHG|XADD|CMPXCHG|MFENCE|LFENCE|SFENCE|PAUSE|CPUID)`)
	sendFunc     = regexp.MustCompile(`^github\.com/goverbs/goverbs/(\S+) STEXT`)
	sendInst     = regexp.MustCompile(`^\t0x[0-9a-f]+ \d+ \((.*)\)\t(\S+)(?:\t(.*))?$`)
)

// TestSendInstructions compiles the package again, whatever flags the test itself
// was built with, and reads what became of the way to the device: no locked
// instruction, no fence, no write barrier, no store of a byte that was meant as part
// of a number, no call that is not named above.
func TestSendInstructions(t *testing.T) {
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skipf("declared skip: there is no go command here to compile with: %v", err)
	}
	const module = "github.com/goverbs/goverbs/"
	cmd := exec.Command(tool, "build", "-gcflags="+module+"mlx5=-S", module+"mlx5")
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
			if m := sendFunc.FindStringSubmatch(line); m != nil {
				name = m[1]
			}
			continue
		}
		allowed, ok := sendHot[name]
		m := sendInst.FindStringSubmatch(line)
		if !ok || m == nil {
			continue
		}
		seen[name]++
		where, op, args := m[1], m[2], m[3]
		// The compiler spells NOP as an exchange of AX with itself.
		if sendBanned.MatchString(op) && args != "AX, AX" {
			t.Errorf("%s: %s %s at %s", name, op, args, where)
		}
		if strings.Contains(args, "gcWriteBarrier") || strings.Contains(args, "writeBarrier") {
			t.Errorf("%s: a write barrier at %s: it stores a pointer", name, where)
		} else if strings.HasPrefix(op, "CALL") && !sendCalls(args, allowed) {
			t.Errorf("%s: CALL %s at %s", name, args, where)
		}
		// A byte through an index, or a word, is a number taken to pieces.
		if (op == "MOVB" || op == "MOVW") && strings.HasSuffix(args, "*1)") {
			t.Errorf("%s: %s %s at %s: part of a store", name, op, args, where)
		}
	}
	for name := range sendHot {
		if seen[name] < 3 {
			t.Errorf("%s: %d instructions found; the compiler's output was not understood", name, seen[name])
		}
	}
}

// sendCalls says whether the target of a call is one of the allowed ones.
func sendCalls(target string, allowed []string) bool {
	target = strings.TrimPrefix(target, "github.com/goverbs/goverbs/")
	for _, a := range allowed {
		if strings.HasPrefix(target, a+"(SB)") {
			return true
		}
	}
	for _, a := range sendAnywhere {
		if strings.HasPrefix(target, a) {
			return true
		}
	}
	return false
}
