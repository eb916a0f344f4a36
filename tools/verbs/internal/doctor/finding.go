package doctor

import (
	"context"
	"fmt"
)

// Severity is how bad a finding is.
type Severity int

// The severities.
const (
	// Note is worth knowing and no reason to do anything at once.
	Note Severity = iota
	// Warning costs speed, or will fail under load or after a restart.
	Warning
	// Fault keeps programs from working.
	Fault
)

var severities = [...]string{"note", "warning", "fault"}

// String is the word that reports use.
func (s Severity) String() string {
	if s >= 0 && int(s) < len(severities) {
		return severities[s]
	}
	return fmt.Sprintf("Severity(%d)", int(s))
}

// MarshalText is String, for JSON.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (s *Severity) UnmarshalText(text []byte) error {
	for i, name := range severities {
		if name == string(text) {
			*s = Severity(i)
			return nil
		}
	}
	return fmt.Errorf("%q is no severity: note, warning, fault", text)
}

// A Finding is one thing that is wrong.
type Finding struct {
	// Check is the name of the check. Examine sets it.
	Check string `json:"check"`

	Severity Severity `json:"severity"`

	// Object is what is wrong: a device such as "mlx5_0", a port of it
	// such as "mlx5_0/1", or "" for the machine or the process.
	Object string `json:"object"`

	// What is a sentence without a full stop that says what is wrong, and what
	// comes of it.
	What string `json:"what"`

	// Seen says how it was seen: the file or the call, and the value.
	Seen string `json:"seen"`

	// Mend is the command that mends it, or several, one a line, with what there
	// is to say of them behind #: a shell takes the lines as they stand. Where no
	// command does, a sentence says who has to do what.
	Mend string `json:"mend"`
}

// A Check looks at one subject.
type Check struct {
	// Name is one word, in small letters. It stays: scripts compare it.
	Name string
	// About says what is looked at, for -v.
	About string
	// After names the checks whose findings are causes of what this one may
	// find on the same object. They stand earlier in the table.
	After []string
	// Run looks. It may return findings and an error: the error says what
	// it could not look at. Several errors, joined, are told one by one;
	// those made by unseen say which object they are about.
	Run func(ctx context.Context, n *Node) ([]Finding, error)
}

// unseenError is an error about one object.
type unseenError struct {
	object string
	err    error
}

func (e *unseenError) Error() string { return e.err.Error() }
func (e *unseenError) Unwrap() error { return e.err }

// unseen says that something about an object could not be looked at. It is nil without an
// error.
func unseen(object string, err error) error {
	if err == nil {
		return nil
	}
	return &unseenError{object, err}
}
