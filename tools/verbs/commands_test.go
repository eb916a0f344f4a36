package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
)

// Help of every command fits a terminal, says which exit statuses there are, and goes to
// standard output; what no command takes has status 2 and one hint.
func TestHelpOfAll(t *testing.T) {
	for _, c := range commands {
		var out, errs strings.Builder
		if code := run(t.Context(), []string{"help", c.name}, &out, &errs); code != 0 {
			t.Errorf("%s -h: status %d", c.name, code)
		}
		text := out.String() + errs.String()
		if !strings.HasPrefix(text, "usage: verbs "+c.name) || !strings.Contains(text, "xit status") && c.name != "version" {
			t.Errorf("%s -h prints %q", c.name, text)
		}
		for line := range strings.Lines(text) {
			if len(line) > 101 {
				t.Errorf("%s -h has a line of %d characters: %s", c.name, len(line)-1, line)
			}
		}
		errs.Reset()
		if code := c.run(t.Context(), []string{"--no-such-flag"}, io.Discard, &errs); code != 2 || errs.Len() == 0 {
			t.Errorf("%s --no-such-flag: status %d, %q", c.name, code, errs.String())
		}
	}
	if text := usageText(); !strings.Contains(text, "Exit status: ") {
		t.Error(text)
	}
}

// An empty device is none: a script whose variable is not set has not asked for all.
func TestEmptyDevice(t *testing.T) {
	for _, c := range commands {
		args := []string{"-d", ""}
		switch c.name {
		case "decode", "version":
			continue
		case "perf":
			args = append([]string{"send_bw"}, args...)
		}
		var errs strings.Builder
		if code := c.run(t.Context(), args, io.Discard, &errs); code != 2 || !regexp.MustCompile(`-d\b.* (is empty|nothing in it)`).MatchString(errs.String()) {
			t.Errorf("%s -d '': status %d, %q", c.name, code, errs.String())
		}
	}
}

// Examples in the help are right about flags: each is run until it has looked at them.
func TestExamplesParse(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range commands {
		var out strings.Builder
		c.run(ctx, []string{"-h"}, &out, &out)
		n := 0
		for _, m := range regexp.MustCompile(`(?m)^  verbs (`+c.name+`\b.*?)(?:  .*| >.*)?$`).FindAllStringSubmatch(out.String(), -1) {
			n++
			args := strings.Fields(m[1])[1:]
			var err error
			switch c.name {
			case "perf":
				_, err = parsePerf(args, io.Discard)
			case "pingpong":
				_, _, err = parsePingpong(args, io.Discard)
			case "selftest":
				_, err = parseSelftest(args, io.Discard)
			case "top":
				_, err = parseTop(args, io.Discard)
			case "doctor":
				_, err = parseDoctor(args, io.Discard)
			case "decode":
			default:
				err = fmt.Errorf("no test knows how to parse flags of %s", c.name)
			}
			if err != nil {
				t.Errorf("verbs %s: %v", m[1], err)
			}
		}
		if n == 0 && strings.Contains("perf pingpong selftest top doctor decode", c.name) {
			t.Errorf("%s -h has no examples", c.name)
		}
	}
}
