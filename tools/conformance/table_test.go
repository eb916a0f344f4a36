package conformance

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

func readTable(t *testing.T) (text string, rows []Row) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, File))
	if err != nil {
		t.Fatal(err)
	}
	rows, err = Parse(string(b))
	if err != nil {
		t.Fatal(err)
	}
	return string(b), rows
}

// testsOf are the functions of a package's tests, in the package itself and beside it.
func testsOf(t *testing.T, folder string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]bool)
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				all[fn.Name.Name] = true
			}
		}
	}
	return all
}

// The table is whole, every test that it names is there, and it names every test that was
// made for it.
func TestTable(t *testing.T) {
	_, rows := readTable(t)
	if len(rows) != 150 {
		t.Errorf("%d rows, the suite has 150 tests in these modules", len(rows))
	}
	names := Names(rows)
	for folder, tests := range names {
		there := testsOf(t, folder)
		for test := range tests {
			if !there[test] {
				t.Errorf("%s names %s.%s, which there is not", File, folder, test)
			}
		}
	}
	for test := range testsOf(t, "uverbs") {
		if strings.HasPrefix(test, "TestGuestConformance") && !names["uverbs"][test] {
			t.Errorf("%s does not name %s", File, test)
		}
	}
}

// What is wrong with a table is found.
func TestParse(t *testing.T) {
	const good = `
## pd

| upstream test | Go tests | 6.1 | 6.12 | model | pyverbs | reason |
|---|---|---|---|---|---|---|
| pd.PDTest.test_a | uverbs.TestGuestA/b<br>mlx5/model.TestC | pass | skip | refused | pass | because |
| pd.PDTest.test_b | mlx5.TestC | n/a | n/a | pass | skip | no device |
| pd.PDTest.test_c | - | n/a | n/a | n/a | pass | no API |

## Totals

| place | pass | refused | skip | n/a |
|---|---|---|---|---|
| 6.1 | 1 | 0 | 0 | 2 |
| 6.12 | 0 | 0 | 1 | 2 |
| model | 1 | 1 | 0 | 1 |
| pyverbs | 2 | 0 | 1 | 0 |
`
	rows, err := Parse(good)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 3 || rows[0].Line != 6 || rows[0].Module() != "pd" || !slices.Equal(rows[0].Tests, []string{"uverbs.TestGuestA/b", "mlx5/model.TestC"}) ||
		rows[0].Status[Linux612] != Skip || rows[0].Status[Model] != Refused || rows[2].Tests != nil || rows[2].Reason != "no API" {
		t.Errorf("%+v", rows)
	}
	if folder, test := Split(rows[0].Tests[1]); folder != "mlx5/model" || test != "TestC" {
		t.Errorf("%q %q", folder, test)
	}
	for _, c := range []struct{ old, new, says string }{
		{"| because |", "|  |", "6.12: skip without a reason"},
		{"| no API |", "|  |", "6.1: n/a without a reason"},
		{"| pass | skip | refused |", "| pass | skipped | refused |", `6.12: "skipped" is no status`},
		{"| refused | pass | because", "| refused | refused | because", `pyverbs: "refused" is no status`},
		{"test_b |", "test_a |", "pd.PDTest.test_a is in line 6, too"},
		{"pd.PDTest.test_b", "cq.PDTest.test_b", `"cq.PDTest.test_b" is not module.Class.method of module "pd"`},
		{"pd.PDTest.test_b", "pd.test_b", `"pd.test_b" is not module`},
		{"| because |", "| because | so |", "8 cells, want 7"},
		{"| - | n/a | n/a | n/a |", "| mlx5.TestC | n/a | n/a | n/a |", "statuses"},
		{"| - | n/a | n/a | n/a |", "| - | n/a | n/a | pass |", "statuses"},
		{"| mlx5.TestC | n/a | n/a |", "| mlx5.TestC | pass | n/a |", "6.1: pass with tests"},
		{"uverbs.TestGuestA/b", "uverbs.TestA/b", "of which those named TestGuest run there"},
		{"| 6.1 | 1 |", "| 6.1 | 2 |", "totals of 6.1"},
		{"| model | 1 | 1 | 0 | 1 |\n", "", "totals of"},
		{"| upstream test | Go tests |", "| upstream tests | Go tests |", "want"},
	} {
		if _, err := Parse(strings.Replace(good, c.old, c.new, 1)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q instead of %q: %v, want %q", c.new, c.old, err, c.says)
		}
	}
}

// Results that are not as the table says are found, one by one.
func TestCompare(t *testing.T) {
	results := make(Results)
	results.Read("uverbs", "=== RUN   TestGuestA\n    --- PASS: TestGuestA/b (0.00s)\n--- PASS: TestGuestA (0.00s)\n\x16--- SKIP: TestGuestB (0.00s)\n--- FAIL: TestGuestC (0.00s)\nok\n")
	row := func(s Status, tests ...string) []Row {
		return []Row{{Line: 7, Upstream: "pd.X.y", Tests: tests, Status: map[Place]Status{Linux61: s, Linux612: s, Model: s}}}
	}
	for _, c := range []struct {
		row   []Row
		place Place
		want  string
	}{
		{row(Pass, "uverbs.TestGuestA/b"), Linux61, ""},
		{row(Refused, "uverbs.TestGuestA"), Linux61, ""},
		{row(Skip, "uverbs.TestGuestB"), Linux61, ""},
		{row(Skip, "uverbs.TestGuestA", "uverbs.TestGuestB"), Model, ""},
		{row(None), Linux61, ""},
		{row(Pass, "uverbs.TestGuestA", "uverbs.TestElsewhere"), Linux612, ""}, // which is no test for a guest
		{row(Pass, "uverbs.TestGuestA", "uverbs.TestElsewhere"), Model, "pd.X.y on model is to be pass: uverbs.TestElsewhere did not run there, or failed"},
		{row(Pass, "uverbs.TestGuestB"), Linux61, "testdata/conformance.md:7: pd.X.y on 6.1 is to be pass: uverbs.TestGuestB was skipped"},
		{row(Refused, "uverbs.TestGuestB"), Linux61, "is to be refused: uverbs.TestGuestB was skipped"},
		{row(Skip, "uverbs.TestGuestA/b"), Linux61, "is to be skip: they passed"},
		{row(Pass, "uverbs.TestGuestC"), Linux61, "uverbs.TestGuestC did not run there, or failed"},
		{row(Pass, "uverbs.TestGuestA/c"), Linux61, "uverbs.TestGuestA/c did not run"},
		{row(Skip, "uverbs.TestGuestB", "uverbs.TestGuestC"), Linux61, "TestGuestB was skipped, uverbs.TestGuestC did not run"},
		{row(Skip, "uverbs.TestGuestC", "uverbs.TestGuestB"), Linux61, "did not run there, or failed, uverbs.TestGuestB was skipped"},
	} {
		got := strings.Join(Compare(c.row, c.place, results), "\n")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%+v on %s: %q, want %q", c.row, c.place, got, c.want)
		}
	}
	suite := make(Results)
	suite.ReadReferee("ok    pd: X.y\nskip  cq: X.z (for a reason)\nFAIL  cq: X.a\n2 run, 1 passed, 0 failed, 1 skipped\n")
	rows := []Row{
		{Upstream: "pd.X.y", Status: map[Place]Status{Pyverbs: Pass}},
		{Upstream: "cq.X.z", Status: map[Place]Status{Pyverbs: Skip}},
		{Upstream: "cq.X.a", Status: map[Place]Status{Pyverbs: Pass}},
	}
	if wrong := Compare(rows, Pyverbs, suite); len(wrong) != 1 || !strings.Contains(wrong[0], "cq.X.a on pyverbs is to be pass") {
		t.Errorf("%q", wrong)
	}
}
