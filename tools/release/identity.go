package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
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
// the version is the one that Go gives such things. What lies in the folder made for the release is
// no change of the source.
func identify(ctx context.Context, root, made string) (id identity, note string) {
	const unknown = "The binaries do not say of which commit they are: "
	git := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...)
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			err = fmt.Errorf("git %s: %w", args[0], err)
			if said := strings.TrimSpace(errs.String()); said != "" {
				err = fmt.Errorf("%w: %s", err, said)
			}
		}
		return strings.TrimSpace(string(out)), err
	}
	line, err := git("log", "-1", "--format=%H %ct")
	if err != nil {
		return identity{Version: "(devel)"}, unknown + err.Error()
	}
	// An archive may lie in a repository of somebody's own.
	if prefix, err := git("rev-parse", "--show-prefix"); err != nil || prefix != "" {
		return identity{Version: "(devel)"}, unknown + "git keeps another project here, or none"
	}
	hash, seconds, _ := strings.Cut(line, " ")
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || len(hash) < 12 {
		return identity{Version: "(devel)"}, unknown + fmt.Sprintf("git log prints %q", line)
	}
	id = identity{Version: "v0.0.0-" + time.Unix(at, 0).UTC().Format("20060102150405") + "-" + hash[:12], Commit: hash}
	if tag, err := git("describe", "--tags", "--exact-match", "--match", "v[0-9]*"); err == nil {
		id.Version = tag
	}
	status := []string{"status", "--porcelain"}
	if rel, err := filepath.Rel(root, made); err == nil && rel != "." && filepath.IsLocal(rel) {
		status = append(status, "--", ":(top)", ":(top,exclude,literal)"+filepath.ToSlash(rel))
	}
	switch changes, err := git(status...); {
	case err != nil:
		id.Version += "+dirty"
		note = "Git does not say what has changed since the commit, so the version ends in +dirty: " + err.Error()
	case changes != "":
		id.Version += "+dirty"
		first, rest, _ := strings.Cut(changes, "\n")
		note = "The source is not that of the commit, so the version ends in +dirty: git status says " + first
		if rest != "" {
			note += fmt.Sprintf(" and %d more", strings.Count(rest, "\n")+1)
		}
	}
	return id, note
}
