package kernel

import "errors"

// ErrNotPollable is what [File.Events] says of a descriptor that the system's
// poller refuses: nobody could wait on it without giving up a thread.
var ErrNotPollable = errors.New("the event descriptor cannot be polled")

// ErrNotLinux is the answer of every device operation on other systems.
var ErrNotLinux = errors.New("goverbs: RDMA devices need Linux")
