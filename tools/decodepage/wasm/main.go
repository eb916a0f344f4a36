//go:build js && wasm

// Wasm is package decode in a browser: it gives the page one function,
// decodeText, from a text to a JSON string with what is in it.
package main

import (
	"encoding/json"
	"strings"
	"syscall/js"

	"github.com/goverbs/goverbs/tools/decode"
)

// mostShown bounds the answer: a page with more is of no use to anybody.
const mostShown = 500

type answer struct {
	Findings []finding `json:"findings"`
	Notes    []note    `json:"notes"`
	// First, Flushes and Further count all findings, also those beyond
	// mostShown.
	First   int `json:"first"`
	Flushes int `json:"flushes"`
	Further int `json:"further"`
	// Records is what verbs decode -json prints of the findings shown.
	Records []decode.Record `json:"records"`
}

type finding struct {
	Kind  string        `json:"kind"` // first, flush or further
	Title string        `json:"title"`
	Where string        `json:"where"`
	Role  string        `json:"role"`
	Facts []decode.Fact `json:"facts"`
	Means string        `json:"means"`
	Look  []string      `json:"look"`
	Notes []string      `json:"notes"`
}

type note struct {
	Line int    `json:"line"`
	Text string `json:"text"`
}

func main() {
	js.Global().Set("decodeText", js.FuncOf(func(_ js.Value, args []js.Value) any {
		return decodeText(args[0].String())
	}))
	js.Global().Call("decoderReady")
	select {} // the function must stay callable
}

func decodeText(text string) string {
	a := answer{Findings: []finding{}, Notes: []note{}, Records: []decode.Record{}}
	err := decode.Scan(strings.NewReader(text), func(f *decode.Finding) error {
		kind := "first"
		switch {
		case f.IsFlush():
			kind = "flush"
			a.Flushes++
		case f.Consequence:
			kind = "further"
			a.Further++
		default:
			a.First++
		}
		if len(a.Findings) < mostShown {
			e := decode.Explain(f)
			a.Findings = append(a.Findings, finding{kind, e.Title, e.Where, e.Role, e.Facts, e.Means, e.Look, e.Notes})
			a.Records = append(a.Records, decode.RecordOf(f))
		}
		return nil
	}, func(n decode.Note) {
		if len(a.Notes) < mostShown {
			a.Notes = append(a.Notes, note{n.Line, n.Text})
		}
	})
	if err != nil {
		a.Notes = append(a.Notes, note{0, err.Error()})
	}
	b, err := json.Marshal(a)
	if err != nil {
		return `{"findings":[],"notes":[{"line":0,"text":"the answer could not be written"}],"records":[]}`
	}
	return string(b)
}
