package api

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"
)

// text is the text of a package of one file, which may import nothing.
func text(t *testing.T, src string) string {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "p.go", "package p\n"+src, 0)
	if err != nil {
		t.Fatal(err)
	}
	pkg, err := new(types.Config).Check("example.org/p", fset, []*ast.File{f}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return Text(pkg)
}

func TestText(t *testing.T) {
	got := text(t, `
const A, b = 1 << 70, 2
type Flag uint8
const On Flag = 1
var V, w []int
func Do[T any, P *T](first string, rest ...T) (n int, err error) { return }
func quiet() {}
type inner struct { Promoted int; hidden int }
func (*inner) Stop() {}
func (inner) Look() bool { return false }
type S struct { inner; Flag; X, y map[string]S }
func (s S) Value(a int) (b int) { return }
func (s *S) Pointer() {}
func (s *S) unseen() {}
type Open interface { Read(p []byte) (int, error) }
type Sealed interface { Open; seal() }
type Number interface { ~int | ~int64 }
type Pair[K comparable, V any] struct { Key K; Value V }
func (p *Pair[K, V]) Swap(other Pair[K, V]) {}
type Same = S
type Fn func(a, b int) error
`)
	want := `
const A untyped int = 1180591620717411303424
const On Flag = 1
field Pair.Key K
field Pair.Value V
field S.Flag Flag (embedded)
field S.Promoted int
field S.X map[string]S
func Do[T any, P *T](string, ...T) (int, error)
method (*Pair) Swap(Pair[K, V])
method (*S) Pointer()
method (*S) Stop()
method (S) Look() bool
method (S) Value(int) int
need Open.Read([]byte) (int, error)
need Sealed.Read([]byte) (int, error)
type Flag uint8
type Fn func(a int, b int) error
type Number interface{~int | ~int64}
type Open interface
type Pair[K comparable, V any] struct (without ==)
type S struct
type Same = S
type Sealed interface (sealed)
var V []int
`
	if got != want[1:] {
		t.Errorf("got:\n%s\nwant:%s", got, want)
	}
}

func TestCompare(t *testing.T) {
	before := text(t, `
const N = 1
type S struct { X int }
func (s S) M() {}
func (s S) Gone() {}
type Open interface { A() }
type Sealed interface { A(); seal() }
type Openly interface { A() }
`)
	after := text(t, `
const N = 2
type S struct { X int; Y int }
func (s *S) M() {}
func (s S) New() {}
type Open interface { A(); B() }
type Sealed interface { A(); B(); seal() }
type Openly interface { A() }
type Later interface { A() }
`)
	c := Compare(before, after)
	breaking := []string{
		"- const N untyped int = 1", "- method (S) Gone()", "- method (S) M()",
		"+ const N untyped int = 2", "+ method (*S) M()", "+ need Open.B()",
	}
	added := []string{"+ field S.Y int", "+ method (S) New()", "+ need Later.A()", "+ need Sealed.B()", "+ type Later interface"}
	if !slices.Equal(c.Breaking, breaking) {
		t.Errorf("breaking: %s", strings.Join(c.Breaking, "\n"))
	}
	if !slices.Equal(c.Added, added) {
		t.Errorf("added: %s", strings.Join(c.Added, "\n"))
	}
	if c := Compare(after, after); c.Breaking != nil || c.Added != nil {
		t.Errorf("a text differs from itself: %v", c)
	}
}

func TestNames(t *testing.T) {
	names := Names("func NewTable[T any](int) *Table[T]\nfield WC.ID uint64\nmethod (*CQ) Poll([]WC) (int, error)\nconst RC QPType = 1\ntype CQ struct\n")
	for _, want := range []string{"NewTable", "WC.ID", "CQ.Poll", "RC", "CQ"} {
		if !names[want] {
			t.Errorf("no %s in %v", want, names)
		}
	}
	if len(names) != 5 {
		t.Errorf("%d names: %v", len(names), names)
	}
}
