// Package ldflags has what the linker is told (go build -ldflags) when the project builds programs
// for others, or for its guests.
//
//	go build -trimpath -ldflags '-s -w -X runtime.godebugDefault=disablethp=1' ./tools/verbs
package ldflags

// Stripped leaves the symbols and what debuggers need out.
const Stripped = "-s -w"

// SmallPages has Go's heap in pages of the ordinary size from its first page on. Else, where the
// kernel makes huge pages of all memory (Debian does), the first byte of the heap costs a page of 2
// MiB, which the kernel clears: for a short program that is a large part of its life, and all of its
// memory. A large heap that is read all over is slower so: it needs more of the processor's TLB.
// Memory for the device is no part of Go's heap.
//
// GODEBUG=disablethp=1 is a setting of the runtime that no //go:debug line may have, so it is linked
// in as go links those lines in. It stands in their place, of which this module has none, and in that
// of what go adds if the toolchain is newer than go.mod's go line: programs then have the defaults of
// the toolchain. GODEBUG of the environment is added to it. A runtime that does not know the setting
// takes no notice.
const SmallPages = "-X runtime.godebugDefault=disablethp=1"

// Program is for verbs, and what is compared with it.
const Program = Stripped + " " + SmallPages
