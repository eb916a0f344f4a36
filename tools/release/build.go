package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/goverbs/goverbs/tools/internal/ldflags"
	"github.com/goverbs/goverbs/tools/internal/source"
)

// An artifact is one binary.
type artifact struct {
	name, arch string
	id         identity
	binary     []byte
	info       *debug.BuildInfo
}

func (a artifact) sum() string { return sha256Hex(a.binary) }

func sha256Hex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// A builder builds the source below root.
type builder struct {
	root  string
	id    identity
	temp  string // for all that is needed in between
	cache string // the build cache, or "" for the user's
	// settings is what is the user's of go's environment.
	settings []string
}

// userSettings are those of go's settings by which modules are found and builds kept. The user may
// have set them with go env -w, in a file of which nothing else may count.
func userSettings(ctx context.Context, root string) ([]string, error) {
	names := []string{"GOPROXY", "GOSUMDB", "GOPRIVATE", "GONOPROXY", "GONOSUMDB", "GOINSECURE", "GOVCS", "GOAUTH", "GOMODCACHE", "GOCACHE", "GOTOOLCHAIN"}
	cmd := exec.CommandContext(ctx, "go", append([]string{"env", "-json"}, names...)...)
	cmd.Dir = root
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	values := map[string]string{}
	if err := json.Unmarshal(text, &values); err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	all := []string{"GOENV=off"}
	for _, name := range names {
		all = append(all, name+"="+values[name])
	}
	return all, nil
}

// build builds the binary for an architecture.
func (b builder) build(ctx context.Context, arch string) (artifact, error) {
	a := artifact{name: "verbs-linux-" + arch, arch: arch, id: b.id}
	dir, err := os.MkdirTemp(b.temp, "build-")
	if err != nil {
		return a, err
	}
	file := filepath.Join(dir, a.name)
	// What git says comes by -X, and not by -buildvcs, which finds nothing in a linked worktree
	// and calls a release made from an archive "(devel)".
	flags := fmt.Sprintf("%s -X main.releaseVersion=%s -X main.releaseCommit=%s", ldflags.Program, b.id.Version, b.id.Commit)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags="+flags, "-o", file, "./tools/verbs")
	cmd.Dir, cmd.Env = b.root, append(os.Environ(), environment(arch)...)
	cmd.Env = append(cmd.Env, "GOTMPDIR="+dir)
	cmd.Env = append(cmd.Env, b.settings...)
	// Go ends its compilers when it is interrupted, and leaves them when it is killed.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	if b.cache != "" {
		cmd.Env = append(cmd.Env, "GOCACHE="+b.cache)
	}
	if text, err := cmd.CombinedOutput(); err != nil {
		if ctx.Err() != nil {
			return a, context.Cause(ctx)
		}
		return a, fmt.Errorf("go build for linux/%s: %w\n%s", arch, err, text)
	}
	if a.binary, err = os.ReadFile(file); err != nil {
		return a, err
	}
	if len(a.binary) > sizeLimit {
		return a, fmt.Errorf("%s has %d bytes, more than %d", a.name, len(a.binary), int(sizeLimit))
	}
	a.info, err = buildinfo.Read(bytes.NewReader(a.binary))
	return a, err
}

// environment is all of go's environment that changes what it builds.
func environment(arch string) []string {
	return []string{
		"GOOS=linux", "GOARCH=" + arch, "GOAMD64=v1", "GOARM64=v8.0", "CGO_ENABLED=0",
		"GOFLAGS=-mod=readonly", "GOWORK=off", "GOEXPERIMENT=", "GOFIPS140=off", "GODEBUG=",
	}
}

// verify builds once more, elsewhere and from nothing, and compares.
func verify(ctx context.Context, b builder, made []artifact) error {
	copied := filepath.Join(b.temp, "elsewhere")
	if err := source.Copy(ctx, copied, b.root); err != nil {
		return fmt.Errorf("copy the source: %w", err)
	}
	b.root, b.cache = copied, filepath.Join(b.temp, "cache")
	for _, first := range made {
		second, err := b.build(ctx, first.arch)
		if err != nil {
			return err
		}
		if !bytes.Equal(first.binary, second.binary) {
			return fmt.Errorf("%s is not the same when it is built from another folder: %s and %s", first.name, first.sum(), second.sum())
		}
	}
	return nil
}
