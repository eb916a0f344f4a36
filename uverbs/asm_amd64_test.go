package uverbs

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// posting are the functions from a call to the doorbell with the calls that may stand in
// them. All else on the way is inlined, some of it with a cost close to the most that the
// compiler inlines: both rings' requests in pieces, their entry in the table, and write of
// package kernel.
var posting = map[string][]string{
	"uverbs.(*SendQueue).SendInline":  {"uverbs.(*SendQueue).how", "uverbs.(*SendQueue).sendInline", "runtime.memmove"},
	"uverbs.(*SendQueue).WriteInline": {"uverbs.(*SendQueue).how", "uverbs.(*SendQueue).writeInline", "runtime.memmove"},
	"uverbs.(*SendQueue).Send":        {"uverbs.(*SendQueue).how", "uverbs.(*SendQueue).send", "uverbs.(*SendQueue).soften"},
	"uverbs.(*SendQueue).Write":       {"uverbs.(*SendQueue).how", "uverbs.(*SendQueue).write", "uverbs.(*SendQueue).soften"},
	"uverbs.(*SendQueue).Read":        {"uverbs.(*SendQueue).how", "uverbs.(*SendQueue).read", "uverbs.(*SendQueue).soften"},
	"uverbs.(*SendQueue).how":         {},
	"uverbs.(*SendQueue).soften":      {"uverbs.(*SendQueue).general"},
	"uverbs.(*SendQueue).Flush": {
		dynamic, // Publish of the ring
		"uverbs.(*doorbell).ring",
		"uverbs.(*SendQueue).refuse", "uverbs.(*SendQueue).unrung", // failures
		"runtime.memclrHasPointers", // binds of memory windows
	},
	"uverbs.(*doorbell).ring": {
		dynamic,                                 // Write of the file
		"uverbs.isErrno", "uverbs.(*Device).do", // where the kernel refuses that
	},
	"uverbs/internal/kernel.(*file).Write": {
		"syscall.RawSyscall6",
		"sync.runtime_SemacquireRWMutexR", "sync.(*RWMutex).rUnlockSlow", // where Close has begun
		"runtime.convT64", // failures
	},
}

// dynamic is a call through an interface.
const dynamic = ""

var (
	asmFunc = regexp.MustCompile(`^github\.com/goverbs/goverbs/(\S+) STEXT`)
	asmCall = regexp.MustCompile(`\((\S+)\)\tCALL\t(?:github\.com/goverbs/goverbs/)?(?:(\S+)\(SB\)|\w+)$`)
	// Stack growth and failed bounds checks may stand in all.
	asmAnywhere = regexp.MustCompile(`^runtime\.(morestack|panicBounds|panicIndex|panicSlice|panicunsafeslice)`)
)

// TestPostingCalls compiles the package again, whatever flags the test itself was built
// with, and looks that no call stands on the way of a request that is not named above.
func TestPostingCalls(t *testing.T) {
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skipf("declared skip: there is no go command here to compile with: %v", err)
	}
	const module = "github.com/goverbs/goverbs/"
	cmd := exec.Command(tool, "build", "-gcflags="+module+"uverbs=-S", "-gcflags="+module+"uverbs/internal/kernel=-S", module+"uverbs")
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOOS=linux", "GOARCH=amd64", "GOAMD64=v1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	calls := map[string]int{}
	name := ""
	for line := range strings.Lines(string(out)) {
		line = strings.TrimRight(line, "\n")
		if !strings.HasPrefix(line, "\t") { // another symbol begins
			name = ""
			if m := asmFunc.FindStringSubmatch(line); m != nil {
				name = m[1]
				calls[name] = 0
			}
			continue
		}
		allowed, hot := posting[name]
		m := asmCall.FindStringSubmatch(line)
		if !hot || m == nil {
			continue
		}
		where, target := m[1], m[2]
		calls[name]++
		if !slices.Contains(allowed, target) && !asmAnywhere.MatchString(target) {
			t.Errorf("%s: CALL %s at %s, which was inlined or not there", name, target, where)
		}
	}
	for name, allowed := range posting {
		if n, ok := calls[name]; !ok || n < len(allowed) {
			t.Errorf("%s: %d calls found; the compiler's output was not understood", name, n)
		}
	}
}
