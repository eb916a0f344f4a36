package uverbs

// CQOptions are the choices of NewCQ. The zero value, and nil, mean a queue for
// busy polling.
type CQOptions struct {
	// Events gives the queue a completion channel of its own, on which a
	// waiter can sleep.
	Events bool
	// Channel puts the queue's events on a channel that other queues use
	// too, instead of one of its own.
	Channel *Channel
	// Shared lets several goroutines poll the queue; each Poll then takes a
	// lock.
	Shared bool
	// Vector is the completion vector that serves the queue's events, less
	// than Device.CompletionVectors.
	Vector int
}
