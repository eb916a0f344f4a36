package decode

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// pasted is one text from testdata/cases.json: what people have pasted into
// mailing lists, forums and issue trackers.
type pasted struct {
	ID     string           `json:"id"`
	Form   string           `json:"form"`
	Text   string           `json:"text"`
	Expect []map[string]any `json:"expect"`
	Note   string           `json:"note"`
}

func readCases(tb testing.TB, name string) []pasted {
	tb.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		tb.Fatal(err)
	}
	var out []pasted
	if err := json.Unmarshal(b, &out); err != nil {
		tb.Fatal(err)
	}
	return out
}

// scanAll runs Scan and returns what it finds, also as JSON values.
func scanAll(tb testing.TB, text string) ([]*Finding, []map[string]any, []Note) {
	tb.Helper()
	var found []*Finding
	var notes []Note
	var buf bytes.Buffer
	j := NewJSON(&buf)
	err := Scan(strings.NewReader(text), func(f *Finding) error {
		found = append(found, f)
		return j.Finding(f)
	}, func(n Note) { notes = append(notes, n) })
	if err != nil {
		tb.Fatal(err)
	}
	if err := j.Close(); err != nil {
		tb.Fatal(err)
	}
	var records []map[string]any
	if err := json.Unmarshal(buf.Bytes(), &records); err != nil {
		tb.Fatalf("not JSON: %v\n%s", err, buf.Bytes())
	}
	return found, records, notes
}

// beyond is what the cases must give where their file expects nothing to be
// compared, and how many completions those tell of that state only the first.
var beyond = map[string][]map[string]any{
	"e06-ppc64-interleaved-4cqes": {
		{"qpn": 0x10d, "wqe_counter": 0, "syndrome": 2, "vendor_err_synd": 0x68, "hw_err_synd": 0x86},
		{"qpn": 0x12b, "wqe_counter": 0, "syndrome": 2, "vendor_err_synd": 0x68, "hw_err_synd": 0x86},
		{"qpn": 0x11f, "wqe_counter": 0, "syndrome": 2, "vendor_err_synd": 0x68, "hw_err_synd": 0x86},
		{"qpn": 0x125, "wqe_counter": 0, "syndrome": 2, "vendor_err_synd": 0x68, "hw_err_synd": 0x86},
	},
	"e10-header-only-elided": {},
	"k12-qp-error-line-loclen": {
		{"qpn": 51291, "wc_status": 1, "syndrome": 1, "vendor_err_synd": 0x8e, "hw_err_synd": 0, "hw_synd_type": 0},
		{"qpn": 114233, "wc_status": 1, "syndrome": 1, "vendor_err_synd": 0x8e, "hw_err_synd": 0, "hw_synd_type": 0},
	},
	"k14-nvmet-retry":         {{"wc_status": 12, "side": "requester"}},
	"k15-nvme-flush-siw":      {{"wc_status": 5, "side": "responder"}},
	"u07-srq-locprot-buggy":   {{"wc_status": 4, "syndrome": 4, "vendor_err_synd": 50, "hw_err_synd": 146, "qpn": 0x12567}},
	"o09-libfabric-gdb-flush": {{"wc_status": 5, "vendor_err_synd": 244, "qpn": 39785}},
	"o10-broadcom-retry":      {{"wc_status": 12, "qpn": 0x2e24}},
	"o11-broadcom-locqpop":    {{"wc_status": 2, "qpn": 0x2c91}},
	"u09-retry-read":          {{"qpn": 0x3340, "s_wqe_opcode": 0x10}, {"wc_status": 12, "vendor_err_synd": 129, "qpn": 0x3502, "s_wqe_opcode": 0x0a}},
	"u12-write-remacc-glued":  {{"qpn": 0x263a8, "s_wqe_opcode": 8}, {"wc_status": 10, "syndrome": 0x13, "vendor_err_synd": 0x88}},
	"n01-retry-then-flush":    {{"wc_status": 12}, {"wc_status": 5, "vendor_err_synd": 249}},
	"o03-sample-retry-flush":  {{"wc_status": 12}, {"wc_status": 5, "vendor_err_synd": 249}},
}

func TestCases(t *testing.T) {
	cases := readCases(t, "cases.json")
	if len(cases) != 54 {
		t.Fatalf("%d cases, want 54", len(cases))
	}
	for _, c := range cases {
		t.Run(c.ID, func(t *testing.T) {
			_, got, _ := scanAll(t, c.Text)
			want := c.Expect
			if b, ok := beyond[c.ID]; ok {
				for i := range want {
					expect(t, got, i, want[i])
				}
				want = b
			}
			if len(got) != len(want) {
				t.Fatalf("found %d, want %d\n%s\ngot %v", len(got), len(want), c.Text, got)
			}
			for i := range want {
				expect(t, got, i, want[i])
			}
		})
	}
}

// expect holds the i-th record against the values it must have.
func expect(t *testing.T, got []map[string]any, i int, want map[string]any) {
	t.Helper()
	if i >= len(got) {
		t.Fatalf("finding %d is missing", i)
	}
	for k, v := range want {
		if n, ok := v.(int); ok {
			v = float64(n)
		}
		if d := cmp.Diff(v, got[i][k]); d != "" {
			t.Errorf("finding %d, %s (-want +got):\n%s", i, k, d)
		}
	}
}
