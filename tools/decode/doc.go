// Package decode finds and explains failed RDMA completions in whatever somebody
// pasted: kernel logs, dumps of error CQEs, lines of NCCL, UCX, Open MPI, SPDK,
// perftest and others. It is what `verbs decode` and the decode page are made
// of.
//
//	report := decode.NewText(os.Stdout, 0)
//	err := decode.Scan(os.Stdin, report.Finding, report.Note)
//	if err != nil {
//		return err
//	}
//	return report.Close()
//
// # How it reads
//
// By structure. Rows of hexadecimal bytes are put together by their offsets,
// their printer and their place, and are an error CQE if their last bytes say
// so. A line of text is taken apart into facts ("vendor err 129", "qp 0x28f96",
// "remote access error (10)") and is a failed completion if the facts make one.
// A dump and lines of text that stand close and agree tell of the same
// completion. No program's messages are known by heart, so those of tomorrow
// are read too.
//
// What is not mlx5 is refused by saying so: dumps whose bytes are none of an
// error CQE, vendor codes of other vendors' devices, syndromes of firmware
// commands.
//
// # Concurrency
//
// [Scan] uses no goroutines and no shared state; any number may run at once. A
// [Text] and a [JSON] belong to one goroutine.
//
// # Errors
//
// [Scan] returns the reader's error, or that of its first argument, which ends
// the scan. No text is an error, and none makes it panic.
package decode
