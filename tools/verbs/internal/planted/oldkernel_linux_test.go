package planted

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/tools/verbs/internal/doctor"
)

// TestGuestDoctorOldKernel wants of Linux 5.10 what is wrong with it, and of its device, which
// has room for few protection domains, who has them all.
func TestGuestDoctorOldKernel(t *testing.T) {
	if kernel := guest(t); kernel != "5.10" {
		t.Skip("declared skip: this is not Linux 5.10, whose faults these are")
	}
	wrong := []expected{
		{"softroce", doctor.Warning, "", "never completes"},
		{"fork", doctor.Note, "", "does not copy registered pages"},
		{"abi", doctor.Note, "", "does not describe the types of its modules"},
	}
	finds(t, "as it is", doctor.StatusWarning, wrong)
	end := hold(t, 0, nil)
	full := expected{"limits", doctor.Fault, device, "planted.test) has"}
	finds(t, "with all protection domains in use", doctor.StatusFault, append([]expected{full}, wrong...))
	end()
	finds(t, "with these free again", doctor.StatusWarning, wrong)
}

// expected is a finding.
type expected struct {
	check    string
	severity doctor.Severity
	object   string
	words    string
}

// finds wants these findings, in their order.
func finds(t *testing.T, name string, status int, want []expected) {
	t.Helper()
	r, got := doctored(t, nil, nil)
	ok := got == status && len(r.Findings) == len(want)
	for i, w := range want[:min(len(want), len(r.Findings))] {
		f := r.Findings[i]
		ok = ok && f.Check == w.check && f.Severity == w.severity && f.Object == w.object && strings.Contains(f.What+"\n"+f.Seen, w.words)
	}
	if !ok {
		t.Errorf("%s: status %d, findings %+v\nwant %d, %+v", name, got, r.Findings, status, want)
	}
}
