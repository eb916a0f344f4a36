package mmio

import (
	"encoding/hex"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// machine is what each function is to be, as machine code.
var machine = map[string]map[string]string{
	"amd64": {
		"storeDoorbell64": "488b442408 488b4c2410 488908 c3",               // two loads; MOVQ CX, (AX); RET
		"storeWC":         "488b442408 488b4c2410 0faef8 488908 0faef8 c3", // the same between SFENCE and SFENCE
		// SFENCE; in a loop ANDL, LEAQ, eight loads and eight stores of 8 bytes,
		// ascending, ADDQ, ADDL, DECL; SFENCE.
		"copyWC": "488b7c2408 488b5c2410 8b542418 448b542420 0faef8" +
			"2354241c 488d3413 488b06 488b4e08 4c8b4610 4c8b4e18 488907 48894f08 4c894710 4c894f18" +
			"488b4620 488b4e28 4c8b4630 4c8b4e38 48894720 48894f28 4c894730 4c894f38 4883c740 83c240 41ffca 75ae 0faef8 c3",
	},
	"arm64": { // words, the first byte of memory first
		"RequestBarrier": "bf3203d5 c0035fd6", // DMB OSHST; RET
		"RecordBarrier":  "9f3e03d5 c0035fd6", // DSB ST
		"ReadBarrier":    "bf3103d5 c0035fd6", // DMB OSHLD
		// LDR X0, [SP+8]; LDR X1, [SP+16]; STR X1, [X0]; RET
		"storeDoorbell64": "e00740f9 e10b40f9 010000f9 c0035fd6",
		// The same, the store between DSB ST and DSB ST.
		"storeWC": "e00740f9 e10b40f9 9f3e03d5 010000f9 9f3e03d5 c0035fd6",
		// Between DSB ST and DSB ST, in a loop: AND X5, X2, X3; ADD X5, X5, X1;
		// LD1 {V0.16B-V3.16B}, [X5]; ST1 {V0.16B-V3.16B}, [X0], #64; ADD X2, X2, #64;
		// SUBS W4, W4, #1; B.NE.
		"copyWC": "e00740f9 e10b40f9 e21b40b9 e31f40b9 e42340b9 9f3e03d5 4500038a a500018b a020404c 00209f4c 42000191 84040071 41ffff54 9f3e03d5 c0035fd6",
	},
}

var (
	asmSymbol = regexp.MustCompile(`^github\.com/goverbs/goverbs/mlx5/internal/mmio\.(\w+) STEXT`)
	asmBytes  = regexp.MustCompile(`^\t0x[0-9a-f]{4} ((?:[0-9a-f]{2} )+)`)
)

// assemble returns the machine code of the package's assembly for an architecture.
func assemble(t *testing.T, arch, tags string) map[string]string {
	t.Helper()
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skipf("declared skip: there is no go command here to assemble with: %v", err)
	}
	cmd := exec.Command(tool, "build", "-asmflags=-S", "-tags="+tags, ".")
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	code := map[string]string{}
	name := ""
	for line := range strings.Lines(string(out)) {
		if m := asmSymbol.FindStringSubmatch(line); m != nil {
			name = m[1]
		} else if !strings.HasPrefix(line, "\t") {
			name = ""
		} else if m := asmBytes.FindStringSubmatch(line); m != nil && name != "" {
			code[name] += strings.ReplaceAll(m[1], " ", "")
		}
	}
	return code
}

// TestMachineCode holds the assembly, of both architectures on any, against the
// encodings of the architectures' manuals: one store of 8 bytes and no locked
// instruction, the barriers with the domains that they name.
func TestMachineCode(t *testing.T) {
	for arch, want := range machine {
		got := assemble(t, arch, "")
		for name, code := range want {
			code = strings.ReplaceAll(code, " ", "")
			if _, err := hex.DecodeString(code); err != nil {
				t.Fatal(err)
			}
			// Padding may follow.
			if rest, ok := strings.CutPrefix(got[name], code); !ok || strings.Trim(rest, "0c") != "" {
				t.Errorf("%s: %s is %s, want %s", arch, name, got[name], code)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: %d functions, want %d: %v", arch, len(got), len(want), got)
		}
	}
	if got := assemble(t, "amd64", "goverbs_lfence")["ReadBarrier"]; !strings.HasPrefix(got, "0faee8c3") {
		t.Errorf("with goverbs_lfence ReadBarrier is %q, want LFENCE", got)
	}
}
