package main

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/poll"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/sim"
)

// measured is what a program with all statistics exposes.
func measured(t *testing.T) string {
	t.Helper()
	fabric, err := sim.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := fabric.Open("sim0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	var queues [2]*uverbs.CQ
	for i := range queues {
		if queues[i], err = dev.NewCQ(16, &uverbs.CQOptions{Events: true, Stats: &uverbs.StatsOptions{}}); err != nil {
			t.Fatal(err)
		}
	}
	w, err := poll.NewWaiter(poll.Event{}, queues[0])
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	group, err := poll.NewGroup(func(cq.Queue, []cq.WC) {}, &poll.GroupOptions{Pollers: 1, Unpinned: true})
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	if err := group.Add(queues[1]); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := cq.WriteOpenMetrics(&text, queues[0], w, group); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// What the page says to look at exists: metrics of programs and of verbs top, commands, flags.
func TestNightPage(t *testing.T) {
	page, err := os.ReadFile("NIGHT.md")
	if err != nil {
		t.Fatal(err)
	}
	exposed := measured(t)
	for _, name := range []string{"netlink.metrics", "traced.metrics"} {
		golden, err := os.ReadFile("internal/top/testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		exposed += string(golden)
	}
	samples := map[string]bool{}
	for line := range strings.Lines(exposed) {
		name, _, _ := strings.Cut(line, " ")
		if name == "#" {
			// A family: what it is called without the ending of a sample.
			if f := strings.Fields(line); len(f) > 2 && (f[len(f)-1] == "summary" || f[len(f)-1] == "histogram") {
				samples[f[2]] = true
			}
			continue
		}
		samples[name] = true
		plain, _, _ := strings.Cut(name, "{")
		samples[plain] = true
	}
	metrics, calls := 0, 0
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(string(page), -1) {
		switch text := m[1]; {
		case text == "goverbs_cq", text == "goverbs_waiter", text == "goverbs_group", text == "goverbs_top":
		case strings.HasPrefix(text, "goverbs_"):
			metrics++
			name, label, labelled := strings.Cut(strings.TrimSuffix(text, "}"), "{")
			if !samples[name] || labelled && !strings.Contains(exposed, label) {
				t.Errorf("nobody exposes %s", text)
			}
		case strings.HasPrefix(text, "verbs "):
			calls++
			checkCall(t, strings.Fields(text)[1:])
		}
	}
	for line := range strings.Lines(string(page)) {
		if rest, ok := strings.CutPrefix(line, "    verbs "); ok {
			calls++
			checkCall(t, strings.Fields(rest))
		}
	}
	if metrics < 20 || calls < 10 {
		t.Errorf("only %d metrics and %d commands on the page", metrics, calls)
	}
}

// The page of the tools has a section for each command, and shows commands and flags that exist.
func TestToolsPage(t *testing.T) {
	text, err := os.ReadFile("TOOLS.md")
	if err != nil {
		t.Fatal(err)
	}
	var headings strings.Builder
	calls := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "## ") {
			headings.WriteString(strings.ReplaceAll(line, ",", " ,"))
		}
		if rest, ok := strings.CutPrefix(strings.Replace(line, "    $ ", "    ", 1), "    verbs "); ok && !strings.HasPrefix(rest, "v0") {
			calls++
			args, _, _ := strings.Cut(rest, "; on ") // a comment
			checkCall(t, strings.Fields(args))
		}
	}
	for _, m := range regexp.MustCompile("`verbs ([a-z][^`]*)`").FindAllStringSubmatch(string(text), -1) {
		calls++
		checkCall(t, strings.Fields(m[1]))
	}
	for _, c := range commands {
		if !slices.Contains(strings.Fields(headings.String()), c.name) {
			t.Errorf("TOOLS.md has no section about verbs %s", c.name)
		}
	}
	if calls < 20 {
		t.Errorf("only %d commands on the page", calls)
	}
}

// checkCall checks that a command of verbs exists, with the flags that it is given.
func checkCall(t *testing.T, args []string) {
	t.Helper()
	i := slices.IndexFunc(commands, func(c command) bool { return c.name == args[0] })
	if i < 0 {
		t.Errorf("there is no verbs %s", args[0])
		return
	}
	var help bytes.Buffer
	if code := commands[i].run(t.Context(), []string{"-h"}, &help, &help); code != 0 {
		t.Errorf("verbs %s -h: status %d", args[0], code)
	}
	for _, a := range args[1:] {
		if strings.HasPrefix(a, "-") && !strings.Contains(help.String(), a) {
			t.Errorf("verbs %s has no %s", args[0], a)
		}
	}
}

// The README lists all commands, and no other.
func TestReadmeCommands(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed, want []string
	for _, m := range regexp.MustCompile("(?m)^\\| `verbs ([a-z]+)` \\|").FindAllStringSubmatch(string(readme), -1) {
		listed = append(listed, m[1])
	}
	for _, c := range commands {
		want = append(want, c.name)
	}
	slices.Sort(listed)
	slices.Sort(want)
	if !slices.Equal(listed, want) {
		t.Errorf("README.md lists %v, and there are %v", listed, want)
	}
}
