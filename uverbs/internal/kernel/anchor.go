package kernel

import "runtime"

// Anchor is a part of an object that is not to be forgotten without a trace.
type Anchor struct{ _ byte }

// OnCollect has f called some time after nobody can reach the object any more that the
// anchor is in. f must not lead to it. All objects of the library use it, so that a
// program has runtime.AddCleanup, which is generic and large, once.
func (a *Anchor) OnCollect(f func()) runtime.Cleanup {
	return runtime.AddCleanup(a, func(f func()) { f() }, f)
}
