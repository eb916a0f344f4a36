package decode

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/mlx5"
)

// FuzzDecodeText holds the decoder against the slow one, against itself when
// the text comes in pieces, and what it finds against the text.
func FuzzDecodeText(f *testing.F) {
	for _, c := range readCases(f, "cases.json") {
		f.Add(c.Text)
	}
	for _, c := range forms {
		f.Add(c.text)
	}
	for _, c := range silent {
		f.Add(c.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) <= 4<<10 { // the slow decoder is slow
			checkText(t, text)
		}
	})
}

// TestAgainstSlow does what the fuzz test does with all that people pasted.
func TestAgainstSlow(t *testing.T) {
	for _, c := range readCases(t, "cases.json") {
		checkText(t, c.Text)
	}
	for i := range 4 {
		checkText(t, strings.Join(printer(i), "\n"))
	}
}

// checkText takes texts without lines so long that Scan cuts them into pieces: the
// slow decoder does not.
func checkText(t *testing.T, text string) {
	var found []*Finding
	var notes []Note
	report := NewText(io.Discard, 0)
	var array bytes.Buffer
	j := NewJSON(&array)
	err := Scan(newPieces(text), func(f *Finding) error {
		found = append(found, f)
		if err := report.Finding(f); err != nil {
			return err
		}
		return j.Finding(f)
	}, func(n Note) {
		notes = append(notes, n)
		report.Note(n)
	})
	if err != nil {
		t.Fatal(err)
	}
	report.File("another")
	if err := errors.Join(j.Close(), report.Close()); err != nil {
		t.Fatal(err)
	}
	if !json.Valid(array.Bytes()) {
		t.Fatalf("not JSON: %s", &array)
	}
	slow, slowNotes := slowScan(text)
	if got, want := describe(found, notes), describe(slow, slowNotes); got != want {
		t.Fatalf("the fast decoder found\n%s\nthe slow one\n%s", got, want)
	}
	for _, line := range strings.Split(text, "\n") {
		c := clean(nil, []byte(line))
		slowly := slowEscaped.ReplaceAllString(string(c), " ")
		c = unescape(c)
		if string(c) != slowly {
			t.Fatalf("without escapes %q, slowly %q", c, slowly)
		}
		if fast, slow := tokenize(c), slowTokenize(string(c)); !slices.Equal(fast, slow) {
			t.Fatalf("tokens of %q: %v, slowly %v", c, fast, slow)
		}
	}
	lines := strings.Count(text, "\n") + 1
	for _, f := range found {
		checkFinding(t, f, lines)
	}
	checkPlainDumps(t, text)
	checkPieces(t, text, lines)
}

// checkPieces reads the text as if lines were long: what is found then may be
// less, but must be sound.
func checkPieces(t *testing.T, text string, lines int) {
	t.Helper()
	err := scan(newLines(strings.NewReader(text), 192), func(f *Finding) error {
		checkFinding(t, f, lines)
		return nil
	}, func(Note) {})
	if err != nil {
		t.Fatal(err)
	}
}

// checkFinding holds a finding against what must be true of any.
func checkFinding(t *testing.T, f *Finding, lines int) {
	t.Helper()
	if f.Line < 1 || f.LastLine < f.Line || f.LastLine > lines {
		t.Errorf("lines %d-%d of %d", f.Line, f.LastLine, lines)
	}
	if f.FlushOf < 0 || f.FlushOf > lines || f.FlushOf != 0 && !f.Consequence {
		t.Errorf("line %d follows an error in line %d", f.Line, f.FlushOf)
	}
	if f.Syndrome.OK && f.Status != some(f.Syndrome.V.Status()) {
		t.Errorf("syndrome %v with status %v", f.Syndrome, f.Status)
	}
	if f.CQE.OK && f.Signature == nil {
		e, err := mlx5.ParseErrorCQE(&f.CQE.V)
		if err != nil {
			t.Fatal(err)
		}
		var g Finding
		g.fromError(e)
		if g.QPN != f.QPN || g.Status != f.Status || g.Vendor != f.Vendor || g.Side != f.Side || g.WQECounter != f.WQECounter || g.SendOpcode != f.SendOpcode {
			t.Errorf("finding %+v is not what its bytes say", f)
		}
	}
	if e := Explain(f); e.Title == "" || e.Means == "" || len(e.Facts) == 0 {
		t.Errorf("no explanation of %+v", f)
	}
}

// checkPlainDumps holds the plainest dumps against the obvious way to read them.
func checkPlainDumps(t *testing.T, text string) {
	t.Helper()
	texts, cqes := slowDumps(text)
	for i, dump := range texts {
		var got []*Finding
		if err := Scan(strings.NewReader(dump), func(f *Finding) error {
			got = append(got, f)
			return nil
		}, func(Note) {}); err != nil {
			t.Fatal(err)
		}
		b := cqes[i]
		isError := (b[63]>>4 == 0xd || b[63]>>4 == 0xe) && b[63]&0xc == 0 && mlx5.Syndrome(b[55]).Known()
		if isError != (len(got) == 1) || isError && !bytes.Equal(got[0].CQE.V[:], b) {
			t.Errorf("%s\nis an error CQE: %v, found %d", hex.EncodeToString(b), isError, len(got))
		}
	}
}

// describe writes findings and notes so that they can be compared.
func describe(found []*Finding, notes []Note) string {
	var b strings.Builder
	for _, f := range found {
		e := Explain(f)
		b.WriteString(e.Where + " " + e.Title + " " + e.Role + "\n")
		for _, x := range e.Facts {
			b.WriteString("  " + x.Name + ": " + x.Value + "\n")
		}
		b.WriteString("  " + strings.Join(e.Notes, "; ") + "\n")
	}
	for _, n := range notes {
		b.WriteString(n.Text + "\n")
	}
	return b.String()
}
