// Package api writes what Go packages export as text, one line each thing, and compares
// such texts. What programs can name, and what types they see, is in the text; comments,
// names of parameters and what is not exported are not.
//
//	texts, err := api.Read(ctx, root, []string{"./cq"})
//	change := api.Compare(old, texts["./cq"])
//
// # Concurrency
//
// Its functions share nothing and may be called from any goroutine.
//
// # Errors
//
// Those of the go command, with what it printed, and of its export data.
package api
