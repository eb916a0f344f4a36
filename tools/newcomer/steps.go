package main

import (
	"errors"
	"fmt"
	"strings"
)

// section is the part of the README whose commands are followed.
const section = "## A program of your own"

// A step is a command of the README, or a file that it says to write.
type step struct {
	args       []string
	file, text string
	guest      bool // for a real kernel
}

// String is the step as the README has it.
func (s step) String() string {
	if s.file != "" {
		return "save " + s.file
	}
	return strings.Join(s.args, " ")
}

// readSteps takes the steps out of the README: the lines of its blocks of sh, and its block of go,
// which is main.go.
func readSteps(readme string) ([]step, error) {
	_, text, ok := strings.Cut(readme, "\n"+section)
	if !ok {
		return nil, fmt.Errorf("README.md has no section %q", section)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	var steps []step
	for {
		before, rest, ok := strings.Cut(text, "\n```")
		if !ok {
			break
		}
		kind, rest, _ := strings.Cut(rest, "\n")
		block, after, ended := strings.Cut(rest, "\n```")
		if !ended {
			return nil, errors.New("README.md has a block without an end")
		}
		text = after
		switch kind {
		case "go":
			if !strings.Contains(before, "`main.go`") {
				return nil, errors.New("README.md has a block of go without saying that it is `main.go`")
			}
			steps = append(steps, step{file: "main.go", text: block + "\n"})
		case "sh":
			for line := range strings.Lines(block) {
				s, err := readCommand(strings.TrimSpace(line))
				if err != nil {
					return nil, err
				}
				steps = append(steps, s)
			}
		}
	}
	if len(steps) == 0 {
		return nil, fmt.Errorf("%q has no commands", section)
	}
	return steps, nil
}

// readCommand reads a command. There is no shell for it: it has words, and may have a comment.
func readCommand(line string) (step, error) {
	line, _, _ = strings.Cut(line, " #")
	if strings.ContainsAny(line, `"'$;&|<>*`+"`\\") {
		return step{}, fmt.Errorf("%q takes a shell", line)
	}
	s := step{args: strings.Fields(line)}
	if len(s.args) == 0 || (s.args[0] == "cd" || s.args[0] == "mkdir") && len(s.args) != 2 {
		return step{}, fmt.Errorf("%q is no command", line)
	}
	for _, a := range s.args {
		s.guest = s.guest || strings.HasSuffix(a, "rxevm")
	}
	return s, nil
}
