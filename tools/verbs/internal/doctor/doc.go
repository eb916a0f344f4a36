// Package doctor looks at a machine and a process from top to bottom and says what keeps
// RDMA from working there, or from working well: what is wrong, how that was seen, and the
// command that mends it. It is what "verbs doctor" prints.
//
//	node := doctor.Host()
//	report := doctor.Examine(ctx, node, doctor.Checks(), nil)
//	for _, f := range report.Findings {
//		fmt.Printf("%v: %s\n  seen: %s\n  mend: %s\n", f.Severity, f.What, f.Seen, f.Mend)
//	}
//	os.Exit(report.Status())
//
// A check reads and asks. It changes nothing on the machine, needs no privilege, and says
// that it could not look where it may not. The machine is a [Node]: a tree of files and a
// few functions, which tests replace. Everything read is hostile input: it may be missing,
// of any length and of any content.
//
// # Causes
//
// One cause has many consequences: without the module ib_core there are no devices, files,
// ports and addresses. A check says by [Check.After] which others come before it. What it
// finds on an object, and what it could not look at, is held back when one of those has
// found something on the same object or on all: a warning, a fault, or, of a note, another
// note. Reports keep what was held back, but do not count it.
//
// # Concurrency
//
// Checks run beside each other, each with its own deadline. A check that does not return in
// time is left behind and reported as not made: a kernel that hangs while it removes a
// device must not hang the doctor. The methods of a Node may be called from any goroutine.
//
// # Errors
//
// [Examine] returns none. What a check could not look at is in the report with the reason.
package doctor
