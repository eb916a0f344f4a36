// Package planted holds verbs doctor to what it is for: its tests plant faults in a machine,
// one after the other, each for real, and want the program that people run to name it, and
// nothing else, and to be silent once it is undone.
//
// They take the machine apart, so they run in a guest only, in a boot of its own: the part
// "doctor" of rxevm test, or by hand
//
//	CGO_ENABLED=0 go test -c -o planted.test ./tools/verbs/internal/planted
//	rxevm exec -kernel 6.1 planted.test -test.v
package planted
