package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
)

const versionUsage = `usage: verbs version
Says which version this is, of which commit, and what it was built with. A bug
report should have it.
`

// tools/release sets these. Programs built by other ways have what Go puts into them.
var releaseVersion, releaseCommit string

// cmdVersion is verbs version.
func cmdVersion(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	_, err := parseFlags(flag.NewFlagSet("verbs version", flag.ContinueOnError), args, versionUsage, stdout)
	if err != nil {
		return exitStatus(ctx, "version", err, stderr)
	}
	_, err = io.WriteString(stdout, versionText(buildInfo(), releaseVersion, releaseCommit))
	return exitStatus(ctx, "version", err, stderr)
}

// buildInfo is what Go has put into this program.
func buildInfo() *debug.BuildInfo {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return new(debug.BuildInfo)
	}
	return info
}

// toolVersion is the version of this program, and its commit, as verbs version says them.
func toolVersion() string {
	lines := strings.SplitN(versionText(buildInfo(), releaseVersion, releaseCommit), "\n", 3)
	return strings.TrimPrefix(lines[0], "verbs ") + ", " + lines[1]
}

// versionText is what verbs version prints of a binary and what tools/release put into it.
func versionText(info *debug.BuildInfo, version, commit string) string {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if version == "" {
		version = info.Main.Version
	}
	if version == "" {
		version = "(devel)"
	}
	if commit == "" {
		commit = settings["vcs.revision"]
		if commit != "" && settings["vcs.modified"] == "true" {
			commit += ", changed"
		}
	}
	if commit == "" {
		commit = "not known"
	}
	text := fmt.Sprintf("verbs %s\ncommit %s\n%s %s/%s\n", version, commit, info.GoVersion, settings["GOOS"], settings["GOARCH"])
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		text += fmt.Sprintf("%s %s\n", m.Path, m.Version)
	}
	return text
}
