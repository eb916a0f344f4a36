package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// No more differences are allowed than were agreed on, and each has a name and says why.
func TestDifferencesAllowed(t *testing.T) {
	if len(differences) > mostDifferences {
		t.Errorf("%d differences are allowed, at most %d may be", len(differences), mostDifferences)
	}
	names := make(map[string]bool)
	for _, d := range differences {
		if d.name == "" || names[d.name] || len(d.reason) < 40 || d.extra == nil && len(d.fields) == 0 {
			t.Errorf("%+v", d)
		}
		names[d.name] = true
	}
}

// The same seed makes the same script, others make others, and all have everything in them.
func TestScript(t *testing.T) {
	a, b, c := scriptOf(3, 20000), scriptOf(3, 20000), scriptOf(4, 20000)
	if !bytes.Equal(a.text, b.text) || bytes.Equal(a.text, c.text) || a.requests < 20000 || a.infiniBand || !c.infiniBand {
		t.Errorf("%d, %d and %d requests", a.requests, b.requests, c.requests)
	}
	words := make(map[byte]int)
	for line := range bytes.Lines(a.text) {
		words[line[0]]++
	}
	for _, w := range []byte{wordBegin, wordPD, wordMR, wordMW, wordCQ, wordSRQ, wordQP, wordAH, wordConnect, wordInit, wordState, wordSend, wordRecv, wordSharedRecv,
		wordPoll, wordArm, wordEvent, wordResize, wordLimit, wordModerate, wordGroup, wordRereg, wordDestroy, wordDigest} {
		if words[w] == 0 {
			t.Errorf("no line begins with %c", w)
		}
	}
	kinds, flags, keys := make(map[int]int), make(map[int]int), make(map[int]int)
	empty := 0
	g := newGenerator(3, 20000, false)
	g.posted = func(r *sendWords) {
		kinds[r.kind]++
		keys[r.from]++
		for bit := flagSignaled; bit <= flagInline; bit <<= 1 {
			flags[r.flags&bit]++
		}
		for _, p := range r.pieces {
			empty += truth(p.n == 0)
		}
	}
	g.all()
	if len(kinds) != kindBind+1 || len(keys) != keyBad+1 || len(flags) != 5 || empty == 0 {
		t.Errorf("kinds %v, keys %v, flags %v, %d empty pieces", kinds, keys, flags, empty)
	}
}

// Whatever differs is found, with its step and its name.
func TestCompare(t *testing.T) {
	wqe := bytes.Repeat([]byte{0}, 32)
	wqe[3], wqe[7], wqe[11] = 0x0a, 2, 0x08
	inline := []byte{0, 0, 0, 0x0a, 0, 1, 2, 2, 0, 0, 0, 8, 0, 0, 0, 0, 0x80, 0, 0, 5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	addition := append([]byte{0, 0, 0, 0x12, 0, 1, 2, 4, 0, 0, 0, 8}, bytes.Repeat([]byte{0}, 52)...)
	base := func() []record {
		return []record{
			{step: 1, kind: recordIoctl, of: createCQ, parts: []field{{"CREATE_CQ_CQE+0", "ff000000"}}},
			{step: 2, kind: recordWQE, of: "SQ 1 (RC) at 0", bytes: bytes.Clone(wqe)},
			{step: 2, kind: recordWQE, of: "SQ 1 (RC) at 1", bytes: bytes.Clone(inline)},
			{step: 2, kind: recordWQE, of: "SQ 1 (RC) at 2", bytes: bytes.Clone(addition)},
			{step: 2, kind: recordCQE, of: "CQ 1 at 0", bytes: bytes.Repeat([]byte{0}, 64)},
			{step: 2, kind: recordRecord, of: "QP 1", parts: []field{{"RCV", "00000000"}, {"SND", "00000003"}}},
			{step: 3, kind: recordOutput, of: "cq 1", parts: []field{{"id", "7"}, {"status", "0"}}},
		}
	}
	for name, c := range map[string]struct {
		change func(l []record) []record
		want   string // part of the error, or none
		seen   string // or a difference that is allowed
	}{
		"alike":          {func(l []record) []record { return l }, "", ""},
		"ioctl":          {func(l []record) []record { l[0].parts[0].value = "00010000"; return l }, "step 1: ioctl " + createCQ + " differs in\n  C: CREATE_CQ_CQE+0: ff000000\n  Go: CREATE_CQ_CQE+0: 00010000", ""},
		"fence":          {func(l []record) []record { l[1].bytes[11] = 0x88; return l }, "step 2: WQE SQ 1 (RC) at 0 differs in\n  C: fence, completion, solicited: 08\n  Go: fence, completion, solicited: 88", ""},
		"length":         {func(l []record) []record { l[1].bytes[19] = 1; return l }, "data pointer 0: bytes: 00000001", ""},
		"inline data":    {func(l []record) []record { l[2].bytes[24]++; return l }, "inline data: 0102030406", ""},
		"inline padding": {func(l []record) []record { l[2].bytes[25]++; return l }, "", "unused bytes of requests"},
		"comparison":     {func(l []record) []record { l[3].bytes[40]++; return l }, "", "unused bytes of requests"},
		"addition":       {func(l []record) []record { l[3].bytes[39]++; return l }, "swap or add: 0000000000000001", ""},
		"owner":          {func(l []record) []record { l[4].bytes[63]++; return l }, "opcode, format, owner: 01", ""},
		"record":         {func(l []record) []record { l[5].parts[1].value = "00000004"; return l }, "SND: 00000004", ""},
		"output":         {func(l []record) []record { l[6].parts[1].value = "5"; return l }, "status: 5", ""},
		"missing":        {func(l []record) []record { return append(l[:4:4], l[5:]...) }, "step 2: the next thing is\n  C: step 2, CQE CQ 1 at 0", ""},
		"end":            {func(l []record) []record { return l[:6] }, "Go: nothing more", ""},
		"later":          {func(l []record) []record { l[6].step++; return l }, "step 3", ""},
		"query": {func(l []record) []record {
			return append([]record{{kind: recordIoctl, of: "DEVICE.QUERY_PORT"}}, l...)
		}, "", "queries"},
	} {
		seen := make(map[string]int)
		err := compare(side{"C", base()}, side{"Go", c.change(base())}, seen)
		var m *mismatch
		switch {
		case c.want == "" && err != nil, c.want != "" && (!errors.As(err, &m) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		case c.seen == "" && len(seen) > 0, c.seen != "" && seen[c.seen] != 1:
			t.Errorf("%s: seen %v, want %q", name, seen, c.seen)
		}
	}
}

func TestDifferentialFlags(t *testing.T) {
	for args, want := range map[string]int{"-h": 0, "-n 0": exitUsage, "-seeds 0": exitUsage, "-seed x": exitUsage, "more": exitUsage} {
		var out, complaints bytes.Buffer
		code := cmdDifferential(strings.Fields(args), &out, &complaints)
		if code != want || code != 0 && complaints.Len() == 0 {
			t.Errorf("%s: status %d: %s%s", args, code, &out, &complaints)
		}
		if last := differences[len(differences)-1]; code == 0 && !strings.Contains(out.String(), "  "+last.name+": "+last.reason+"\n") {
			t.Errorf("%s does not say what is allowed:\n%s", args, &out)
		}
	}
}
