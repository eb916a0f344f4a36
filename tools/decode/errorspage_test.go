package decode

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/mlx5"
)

var update = flag.Bool("update", false, "write the tables of ERRORS.md anew")

// errorsPage is the page whose tables are made from those of the code, below the line that says so.
const errorsPage = "ERRORS.md"

const errorsMark = "<!-- From here on: go test ./tools/decode -run ErrorsPage -update -->\n"

// The tables of the page are those of the code.
func TestErrorsPage(t *testing.T) {
	old, err := os.ReadFile(errorsPage)
	if err != nil {
		t.Fatal(err)
	}
	head, _, ok := strings.Cut(string(old), errorsMark)
	if !ok {
		t.Fatalf("%s has no line %s", errorsPage, errorsMark)
	}
	want := head + errorsMark + errorTables()
	if want == string(old) {
		return
	}
	if !*update {
		t.Fatalf("%s is not what the tables say: go test ./tools/decode -run ErrorsPage -update", errorsPage)
	}
	if err := os.WriteFile(errorsPage, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

func errorTables() string {
	var b strings.Builder
	b.WriteString("\n## Statuses\n")
	for s := cq.StatusLocalLength; ; s++ {
		if strings.HasPrefix(s.String(), "Status(") {
			break
		}
		a := adviceFor(s)
		if strings.HasPrefix(a.means, "An error of reliable datagrams") {
			continue
		}
		fmt.Fprintf(&b, "\n### %d: %s\n\n%s Whose fault, most likely: %v. To go on: %v.\n\n", s, s, a.means, s.Fault(), s.Remedy())
		for _, look := range a.look {
			fmt.Fprintf(&b, "- %s\n", look)
		}
	}
	b.WriteString("\nThe other numbers up to 21 are of reliable datagrams, which no device of today has.\n" +
		"\n## Vendor codes of ConnectX\n\n| code | the device says | and that is |\n|---|---|---|\n")
	for i := range 256 {
		if v := mlx5.VendorSyndrome(i); v.Known() {
			fmt.Fprintf(&b, "| 0x%02x | %v | %s |\n", i, v, adviceForVendor[v])
		}
	}
	return b.String()
}
