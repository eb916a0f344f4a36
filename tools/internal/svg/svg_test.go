package svg

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

// Whatever text there is, the drawing is XML and has it.
func TestTextIsEscaped(t *testing.T) {
	for text, want := range map[string]string{
		`<a href="x">&'`: `<a href="x">&'`, "": "", "µs": "µs", "a\x00b\x1b[31m": "a\ufffdb\ufffd[31m", "bad \xff": "bad \ufffd", "no \uffff": "no \ufffd",
	} {
		var c Canvas
		c.Text(1, 2, "head", "start", "%s", text)
		var b strings.Builder
		if err := c.Write(&b, Width, 20, text); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		name := ""
		for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%q: %v in\n%s", text, err, b.String())
			}
			switch token := token.(type) {
			case xml.StartElement:
				name = token.Name.Local
			case xml.EndElement:
				name = ""
			case xml.CharData:
				got[name] += string(token)
			}
		}
		if got["text"] != want || got["title"] != want {
			t.Errorf("%q: text %q, title %q; want %q", text, got["text"], got["title"], want)
		}
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestWriteFails(t *testing.T) {
	if err := new(Canvas).Write(broken{}, 1, 1, ""); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}

func TestColoursRepeat(t *testing.T) {
	if Colour(0) != "w0" || Colour(4) != "w4" || Colour(5) != "w0" {
		t.Error(Colour(0), Colour(4), Colour(5))
	}
}

func TestNiceStep(t *testing.T) {
	for x, want := range map[float64]float64{1: 1, 0.11: 0.2, 3: 5, 6: 10, 450: 500} {
		if got := NiceStep(x); math.Abs(got-want) > want*1e-9 {
			t.Errorf("%g: %g, want %g", x, got, want)
		}
	}
}

func TestWords(t *testing.T) {
	for got, want := range map[string]string{
		Latency(2): "2 µs", Latency(0.25): "0.25 µs", Latency(1500): "1.50 ms", Latency(2e6): "2 s",
		Decade(-1): "100 ns", Decade(0): "1 µs", Decade(4): "10 ms", Decade(6): "1 s",
		Short(1234567): "1.23M", Short(12345): "12.3k", Short(123.4): "123", Short(12.34): "12.3", Short(1.234): "1.23",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
