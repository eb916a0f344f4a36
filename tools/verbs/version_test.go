package main

import (
	"bytes"
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 0, "verbs "},
		{[]string{"-h"}, 0, "usage: verbs version"},
		{[]string{"-x"}, 2, "-x"},
		{[]string{"more"}, 2, `unexpected argument "more"`},
	} {
		var out, errs bytes.Buffer
		if code := cmdVersion(t.Context(), c.args, &out, &errs); code != c.code || !strings.Contains(out.String()+errs.String(), c.want) {
			t.Errorf("%v: status %d, %q, %q", c.args, code, out.String(), errs.String())
		}
	}
}

// Whoever asks in the ways of other programs learns the version, too.
func TestVersionFlags(t *testing.T) {
	want := strings.SplitN(toolVersion(), ",", 2)[0]
	for _, args := range []string{"version", "-V", "-version", "--version", "perf -V", "perf --version", "perf send_bw --version"} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), &out, &errs); code != 0 || !strings.HasPrefix(out.String(), "verbs ") || !strings.Contains(out.String(), want) {
			t.Errorf("%s: status %d, %q, %q; want %q", args, code, out.String(), errs.String(), want)
		}
	}
}

func TestVersionText(t *testing.T) {
	info := &debug.BuildInfo{
		GoVersion: "go1.26.8", Main: debug.Module{Version: "v1.1.0"},
		Deps: []*debug.Module{{Path: "example.org/m", Version: "v1.0.0"}},
		Settings: []debug.BuildSetting{
			{Key: "GOOS", Value: "linux"}, {Key: "GOARCH", Value: "arm64"},
			{Key: "vcs.revision", Value: "0123"}, {Key: "vcs.modified", Value: "true"},
		},
	}
	const rest = "\ngo1.26.8 linux/arm64\nexample.org/m v1.0.0\n"
	for _, c := range []struct {
		info            *debug.BuildInfo
		version, commit string
		want            string
	}{
		{info, "v1.2.3", "4567", "verbs v1.2.3\ncommit 4567" + rest},
		{info, "", "", "verbs v1.1.0\ncommit 0123, changed" + rest},
		{new(debug.BuildInfo), "", "", "verbs (devel)\ncommit not known\n /\n"},
	} {
		if got := versionText(c.info, c.version, c.commit); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
