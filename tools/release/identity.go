package main

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// An identity says which source something was built from.
type identity struct {
	// Version is the tag of the commit, v1.2.3, or what Go calls a commit that has none:
	// v0.0.0-20261130074500-abcdef012345. With +dirty the source is not quite that of the commit.
	Version string
	// Commit is its hash, or "" if git does not know.
	Commit string
}

// identify asks git. Where it does not know, the source is that of an archive: note says why, and
// the version is the one that Go gives such things.
func identify(ctx context.Context, root string) (id identity, note string) {
	git := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...)
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			err = fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(errs.String()))
		}
		return strings.TrimSpace(string(out)), err
	}
	line, err := git("log", "-1", "--format=%H %ct")
	if err != nil {
		return identity{Version: "(devel)"}, err.Error()
	}
	// An archive may lie in a repository of somebody's own.
	if prefix, err := git("rev-parse", "--show-prefix"); err != nil || prefix != "" {
		return identity{Version: "(devel)"}, "git keeps another project here, or none"
	}
	hash, seconds, _ := strings.Cut(line, " ")
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || len(hash) < 12 {
		return identity{Version: "(devel)"}, fmt.Sprintf("git log prints %q", line)
	}
	id = identity{Version: "v0.0.0-" + time.Unix(at, 0).UTC().Format("20060102150405") + "-" + hash[:12], Commit: hash}
	if tag, err := git("describe", "--tags", "--exact-match", "--match", "v[0-9]*"); err == nil {
		id.Version = tag
	}
	if changes, err := git("status", "--porcelain"); err != nil || changes != "" {
		id.Version += "+dirty"
	}
	return id, ""
}
