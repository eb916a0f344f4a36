package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A program in C that asks libibverbs and libmlx5 something is built and runs; one that is wrong is
// no missing thing.
func TestCompileC(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "try.c")
	const text = `#include <stdio.h>
#include <infiniband/mlx5dv.h>
int main(void)
{
	bool (*volatile supported)(struct ibv_device *) = mlx5dv_is_supported;
	printf("%s %d\n", ibv_wc_status_str(IBV_WC_SUCCESS), supported ? ANSWER : 0);
	return 0;
}
`
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "try")
	var missing *missingError
	err := compileC(t.Context(), out, nil, source)
	if errors.As(err, &missing) {
		t.Skip("declared skip: ", missing)
	}
	if err == nil {
		t.Error("it does not know ANSWER, and was built")
	}
	t.Setenv("CC", "no-such-compiler")
	if err := compileC(t.Context(), out, nil, source); !errors.As(err, &missing) {
		t.Errorf("without a compiler: %v", err)
	}
	t.Setenv("CC", "")
	if err := compileC(t.Context(), out, []string{"-O2", "-DANSWER=42"}, source); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(out)
	c.Env = coreEnvironment()
	if b, err := c.CombinedOutput(); err != nil || string(b) != "success 42\n" {
		t.Errorf("%v: %s", err, b)
	}
}
