package model_test

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/mlx5/model"
)

const everyFault = `# every fault that there is
request 3 times=forever device=sim0 qp=0x100 op=send: drop
request: delay 5ms
request 2: behind 3 at-most=10ms
request: behind 1
request times=4: not-ready timer=12
request 4 op=read: fail syndrome=0x13 vendor=0x88
completion 2 cq=0x400: hold 10ms
completion: hold

completion: overrun
event 1 cq=0x400: lose
event 2: duplicate
async type=10: delay 3ms
async type=0: lose
ioctl method=IB_USER_VERBS_CMD_REG_MR: refuse ENOMEM
ioctl: refuse 4095
ioctl 5: slow 1s
time 10ms device=sim0: port 1 down
time 0s device=sim0: port 2 up
time 10ms device=sim0: gid 1 2 fe80::1 roce2
time 10ms device=sim0: gid 1 255 10.0.0.1 roce1
time 10ms device=sim0: gid 1 0 none
time 1s device=sim0: fatal
`

func TestParseScript(t *testing.T) {
	all, err := model.ParseScript(everyFault)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 22 {
		t.Errorf("%d faults", len(all))
	}
	if f := all[0]; f.At != model.AtRequest || f.Nth != 3 || f.Times != model.Forever || f.Device != "sim0" || f.Number != 0x100 || f.Opcode != opSend || !f.HasOpcode {
		t.Errorf("%+v", f)
	}
	checkRoundTrip(t, all)
}

// checkRoundTrip prints faults and reads them again.
func checkRoundTrip(t *testing.T, all []model.Fault) {
	t.Helper()
	for _, f := range all {
		again, err := model.ParseScript(f.String())
		if err != nil || len(again) != 1 || again[0] != f {
			t.Errorf("%+v printed as %q is read as %+v, %v", f, f.String(), again, err)
		}
	}
}

func TestScriptErrors(t *testing.T) {
	for script, want := range map[string]string{
		"request drop":                          "no colon",
		"\n\nreqest: drop":                      `line 3 of the script: "reqest" is no place`,
		"request: dorp":                         "nothing that can happen",
		"request 0: drop":                       "counted from 1",
		"request x: drop":                       "no number",
		"request: delay":                        "missing",
		"request: delay 5":                      "no time",
		"request: delay -5ms":                   "no time",
		"request: drop it":                      `"it" is too much`,
		"event: drop":                           "cannot happen",
		"request cq=1: drop":                    "narrow",
		"request op=sned: drop":                 "no opcode",
		"request qp=0x1000000: drop":            "no number",
		"ioctl: refuse EWHAT":                   "no errno",
		"time 1s device=sim0: port 1 sideways":  "up or down",
		"time 1s device=sim0: gid 1 1 x roce2":  "no GID",
		"time 1s device=sim0: gid 1 1 :: roce2": "no GID",
		"time 1s device=sim0: gid 1 1 ::1 roce": "no type of GID",
		"time soon device=sim0: fatal":          "no time",
		": drop":                                "nothing says where",
	} {
		_, err := model.ParseScript(script)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", script, err, want)
		}
	}
}

// Whatever stands in a script: an error that names a line, or faults that say the same when
// they are printed.
func FuzzParseScript(f *testing.F) {
	f.Add(everyFault)
	for line := range strings.Lines(everyFault) {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, script string) {
		all, err := model.ParseScript(script)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "model: line ") || all != nil {
				t.Errorf("%v, %v", all, err)
			}
			return
		}
		checkRoundTrip(t, all)
	})
}
