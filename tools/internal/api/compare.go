package api

import (
	"slices"
	"strings"
)

// A Change is the difference between two texts.
type Change struct {
	// Breaking are lines that went, or changed, and methods that an interface which others may
	// implement now asks for as well. Each begins with - or +, as in a diff.
	Breaking []string
	// Added are lines that came and break nobody.
	Added []string
}

// Compare says what became of a package's text.
func Compare(before, after string) Change {
	old, now := lines(before), lines(after)
	var c Change
	for _, l := range old {
		if !slices.Contains(now, l) {
			c.Breaking = append(c.Breaking, "- "+l)
		}
	}
	for _, l := range now {
		switch {
		case slices.Contains(old, l):
		case breaks(l, old), slices.ContainsFunc(old, func(o string) bool { return subject(o) == subject(l) }):
			c.Breaking = append(c.Breaking, "+ "+l)
		default:
			c.Added = append(c.Added, "+ "+l)
		}
	}
	return c
}

// breaks says whether a line is a new method of an interface that was open to implementations.
func breaks(line string, old []string) bool {
	rest, ok := strings.CutPrefix(line, "need ")
	if !ok {
		return false
	}
	name, _, _ := strings.Cut(rest, ".")
	return slices.ContainsFunc(old, func(o string) bool {
		return strings.HasPrefix(o, "type "+name) && strings.HasSuffix(o, " interface") && subject(o) == "type "+name
	})
}

// subject is what a line is about, without what it says of it.
func subject(line string) string {
	kind, rest, _ := strings.Cut(line, " ")
	if kind == "method" {
		receiver, rest, _ := strings.Cut(rest, ") ")
		name, _, _ := strings.Cut(rest, "(")
		return "method " + strings.TrimLeft(receiver, "(*") + "." + name
	}
	if i := strings.IndexAny(rest, " (["); i >= 0 {
		rest = rest[:i]
	}
	return kind + " " + rest
}

func lines(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
}

// Names are the names in a text: Dial, Conn, Conn.Read for functions, types, methods and fields.
func Names(text string) map[string]bool {
	names := map[string]bool{}
	for _, l := range lines(text) {
		_, name, _ := strings.Cut(subject(l), " ")
		names[name] = true
	}
	return names
}
