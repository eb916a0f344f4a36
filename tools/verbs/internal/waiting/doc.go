// Package waiting measures what it gives and costs to wait for completions in one way or
// another: latency, messages per second, and processor time.
//
//	report, err := waiting.Run(ctx, waiting.Config{Open: open, Devices: [2]string{"sim0", "sim1"}, ...})
//	err = report.WriteText(os.Stdout)
//
// Paced, a client sends messages of 64 bytes, and a server, which waits in the way that is
// measured, sends each back. On the model both are goroutines of this process; on a device the
// server is a process of its own. The client is always the same: it owns its thread, polls
// while an answer is due, and sleeps in the kernel when it has to send nothing. In a flood the
// server writes into the client's memory, as much as the device takes.
//
// Besides, the package measures what the garbage collector ([RunGC]) and the signals of the
// runtime ([RunPreempt]) cost a program that polls.
//
// # Concurrency
//
// One measurement at a time: it takes the processor time of the whole process.
//
// # Errors
//
// A [*usage.Error] is a choice that cannot be. When ctx ends, Run, RunGC and RunPreempt return
// what they have and the cause.
package waiting
