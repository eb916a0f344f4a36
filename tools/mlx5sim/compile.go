package main

import (
	"context"
	"errors"
	"os"

	"github.com/goverbs/goverbs/tools/internal/compilec"
)

// compileC builds a program from sources in C against libibverbs and libmlx5: those of the folder
// that coreVar names, or the machine's. The compiler is $CC or gcc, and flags come before what
// this adds. Without a compiler or headers the error is a missingError. The program runs in the
// environment of coreEnvironment.
func compileC(ctx context.Context, out string, flags []string, sources ...string) error {
	err := compilec.Program{
		Sources: sources, Flags: flags, Root: os.Getenv(coreVar), Or: ", or let " + coreVar + " name a folder with it unpacked",
		Headers:   []compilec.Header{{Name: "infiniband/verbs.h", Package: "libibverbs-dev"}, {Name: "infiniband/mlx5dv.h", Package: "libibverbs-dev"}},
		Libraries: []string{"libibverbs.so.1", "libmlx5.so.1"},
	}.Build(ctx, out)
	if missing := (*compilec.MissingError)(nil); errors.As(err, &missing) {
		return &missingError{missing.Name, missing.Sentence}
	}
	return err
}
