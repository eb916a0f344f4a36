package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// apply applies a patch to the source in dir, or with checkOnly sees whether that can be
// done. The error has the hunk that does not apply.
func apply(ctx context.Context, dir string, m *mutation, checkOnly bool) error {
	args := []string{"apply", "-v", "--whitespace=nowarn"}
	if checkOnly {
		args = append(args, "--check")
	}
	patch, err := filepath.Abs(m.path)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	err = run(ctx, dir, gitEnvironment(dir), &out, "git", append(args, patch)...)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, strings.TrimSpace(out.String()))
	}
	return nil
}

// gitEnvironment has git take dir for what it is, whatever is around it and whatever
// somebody likes: in a folder of a checkout git apply passes over the files outside of it,
// in silence.
func gitEnvironment(dir string) []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "GIT_") {
			env = append(env, v)
		}
	}
	return append(env, "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull, "LC_ALL=C")
}
