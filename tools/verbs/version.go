package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime/debug"
)

const versionUsage = `usage: verbs version
Says which version this is, of which commit, and what it was built with. A bug
report should have it.
`

// tools/release sets these. Programs built by other ways have what Go puts into them.
var releaseVersion, releaseCommit string

// cmdVersion is verbs version.
func cmdVersion(_ context.Context, args []string, stdout, stderr io.Writer) int {
	_, err := parseFlags(flag.NewFlagSet("verbs version", flag.ContinueOnError), args, versionUsage, stdout)
	if errors.Is(err, errHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "verbs version: %v\nverbs version -h says more.\n", err)
		return 2
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = new(debug.BuildInfo)
	}
	if _, err := io.WriteString(stdout, versionText(info, releaseVersion, releaseCommit)); err != nil {
		fmt.Fprintf(stderr, "verbs version: %v\n", err)
		return 1
	}
	return 0
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
