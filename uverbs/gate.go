package uverbs

// gate is a mutex that is held during calls to the kernel. A device in software may take
// its time over those; in a bubble of testing/synctest it passes only while all others are
// blocked on what belongs to the bubble: as a channel does, and a sync.Mutex does not.
type gate chan struct{}

func newGate() gate { return make(gate, 1) }

func (g gate) Lock() { g <- struct{}{} }

func (g gate) Unlock() { <-g }
