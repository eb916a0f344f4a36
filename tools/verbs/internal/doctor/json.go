package doctor

import (
	"encoding/json"
	"io"
)

// WriteJSON prints the report for programs, as one object. Its keys stay: new ones may come,
// none goes or changes its meaning.
//
//	version     1
//	kernel      the release of the kernel, as uname -r prints it
//	worst       "fault", "warning", "note", or "" when nothing was found
//	status      the exit status: 0 nothing worse than a note, 1 a warning, 3 a fault
//	findings    what is wrong, the worst first: check, severity, object, what, seen, mend
//	held_back   findings that follow from others, with because: the name of that one's check
//	not_looked  what could not be looked at: check, object, why
//	checks      all checks: name, about, saw
//
// An object is a device such as "mlx5_0", a port such as "mlx5_0/1", or "" for the machine
// or the process. Where mend has several commands they stand on lines of their own.
func (r *Report) WriteJSON(w io.Writer) error {
	worst := ""
	if s, ok := r.Worst(); ok {
		worst = s.String()
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(struct {
		Version int    `json:"version"`
		Worst   string `json:"worst"`
		Status  int    `json:"status"`
		*Report
	}{1, worst, r.Status(), r})
}
