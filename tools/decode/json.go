package decode

import (
	"encoding/hex"
	"encoding/json"
	"io"

	"github.com/goverbs/goverbs/cq"
)

// Record is a finding as `verbs decode -json` prints it. What the text does not
// say is absent. Opcode and length that programs print for failed completions
// are garbage and have no place here.
type Record struct {
	Side          string  `json:"side,omitempty"`
	WCStatus      *uint32 `json:"wc_status,omitempty"`
	Syndrome      *uint32 `json:"syndrome,omitempty"`
	VendorErrSynd *uint32 `json:"vendor_err_synd,omitempty"`
	SWQEOpcode    *uint32 `json:"s_wqe_opcode,omitempty"`
	QPN           *uint32 `json:"qpn,omitempty"`
	WQECounter    *uint32 `json:"wqe_counter,omitempty"`
	HWErrSynd     *uint32 `json:"hw_err_synd,omitempty"`
	HWSyndType    *uint32 `json:"hw_synd_type,omitempty"`
	Hex           string  `json:"hex,omitempty"`
	SourceLine    int     `json:"source_line"`
}

// RecordOf turns a finding into its record.
func RecordOf(f *Finding) Record {
	r := Record{
		WCStatus:      number32(f.Status),
		Syndrome:      number32(f.Syndrome),
		VendorErrSynd: number32(f.Vendor),
		SWQEOpcode:    number32(f.SendOpcode),
		QPN:           number32(f.QPN),
		WQECounter:    number32(f.WQECounter),
		HWErrSynd:     number32(f.HWSyndrome),
		HWSyndType:    number32(f.HWSyndType),
		SourceLine:    f.Line,
	}
	if f.Side.OK {
		r.Side = "requester"
		if f.Side.V == cq.RecvSide {
			r.Side = "responder"
		}
	}
	if f.CQE.OK {
		r.Hex = hex.EncodeToString(f.CQE.V[:])
	}
	return r
}

func number32[T interface {
	comparable
	~uint8 | ~uint16 | ~uint32
}](o Opt[T]) *uint32 {
	if !o.OK {
		return nil
	}
	v := uint32(o.V)
	return &v
}

// JSON writes findings as one array, each as soon as it comes.
type JSON struct {
	w     io.Writer
	begun bool
}

// NewJSON makes a writer of an array.
func NewJSON(w io.Writer) *JSON { return &JSON{w: w} }

// Finding writes one element.
func (j *JSON) Finding(f *Finding) error {
	b, err := json.Marshal(RecordOf(f))
	if err != nil {
		return err
	}
	sep := ",\n "
	if !j.begun {
		sep = "[\n "
	}
	j.begun = true
	_, err = j.w.Write(append([]byte(sep), b...))
	return err
}

// Close ends the array.
func (j *JSON) Close() error {
	end := "\n]\n"
	if !j.begun {
		end = "[]\n"
	}
	_, err := io.WriteString(j.w, end)
	return err
}
