//go:build linux

package main

import (
	"strings"
	"testing"
)

func TestJudgeSelftest(t *testing.T) {
	lacks := []string{"RC: atomic write"}
	row := func(test, outcome string) string {
		return `{"group":"RC","test":"` + test + `","outcome":"` + outcome + `","detail":"why"}`
	}
	for _, test := range []struct{ name, out, says string }{
		{"good", `{"rows":[` + row("send", "pass") + "," + row("atomic write", "not supported") + `],"ok":true}`, ""},
		{"behind other lines", "mlx5sim: hello\n{\"rows\":[" + row("send", "pass") + `],"ok":true}`, ""},
		{"failed", `{"rows":[` + row("send", "FAIL") + `],"ok":false}`, "RC: send: FAIL: why"},
		{"hung", `{"rows":[` + row("send", "HUNG") + `],"ok":false}`, "HUNG"},
		{"not run", `{"rows":[` + row("read", "pass") + "," + row("send", "not run") + `],"ok":false}`, "RC: send: not run"},
		{"not supported any more", `{"rows":[` + row("read", "pass") + "," + row("send", "not supported") + `],"ok":true}`, "RC: send: not supported: why"},
		{"supported after all", `{"rows":[` + row("atomic write", "pass") + `],"ok":true}`, "was thought to be"},
		{"nothing", `{"rows":[],"ok":true}`, "0 of 0 rows"},
		{"no report", "Segmentation fault\n", "its report"},
	} {
		_, err := judgeSelftest([]byte(test.out), lacks)
		if test.says == "" && err != nil || test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%s: %v, want %q", test.name, err, test.says)
		}
	}
}
