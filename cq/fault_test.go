package cq

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// Every status that is defined has an answer of its own, and all others a safe one.
func TestFaultAndRemedy(t *testing.T) {
	want := map[Status]struct {
		fault  Fault
		remedy Remedy
	}{
		StatusSuccess:           {FaultNone, RemedyNone},
		StatusLocalLength:       {FaultProgram, RemedyReset},
		StatusLocalQPOperation:  {FaultProgram, RemedyReset},
		StatusLocalEEC:          {FaultDevice, RemedyReset},
		StatusLocalProtection:   {FaultProgram, RemedyReset},
		StatusFlushed:           {FaultConsequence, RemedyReset},
		StatusMWBind:            {FaultProgram, RemedyReset},
		StatusBadResponse:       {FaultPeer, RemedyReconnect},
		StatusLocalAccess:       {FaultPeer, RemedyReset},
		StatusRemoteInvalidReq:  {FaultProgram, RemedyReset},
		StatusRemoteAccess:      {FaultProgram, RemedyReset},
		StatusRemoteOperation:   {FaultPeer, RemedyReset},
		StatusRetryExceeded:     {FaultPath, RemedyReconnect},
		StatusRNRRetryExceeded:  {FaultPeer, RemedyReset},
		StatusLocalRDDViolation: {FaultDevice, RemedyReset},
		StatusRemoteInvalidRD:   {FaultDevice, RemedyReset},
		StatusRemoteAborted:     {FaultPeer, RemedyReset},
		StatusInvalidEECN:       {FaultDevice, RemedyReset},
		StatusInvalidEECState:   {FaultDevice, RemedyReset},
		StatusFatal:             {FaultDevice, RemedyReopen},
		StatusResponseTimeout:   {FaultPath, RemedyReconnect},
		StatusGeneral:           {FaultDevice, RemedyReset},

		// No answer of the table's, whatever a device invents.
		22: {FaultDevice, RemedyReconnect}, 27: {FaultDevice, RemedyReconnect}, math.MaxUint32: {FaultDevice, RemedyReconnect}, 1 << 31: {FaultDevice, RemedyReconnect},
	}
	if len(verdicts) != len(statuses) {
		t.Errorf("%d verdicts of %d statuses", len(verdicts), len(statuses))
	}
	for s := range Status(len(statuses)) {
		w, ok := want[s]
		if !ok {
			t.Errorf("%v is in no test", s)
		}
		if (s == StatusSuccess) != (w.fault == FaultNone) || (s == StatusSuccess) != (w.remedy == RemedyNone) {
			t.Errorf("%v: %v, %v", s, w.fault, w.remedy)
		}
	}
	for s, w := range want {
		if s.Fault() != w.fault || s.Remedy() != w.remedy {
			t.Errorf("%v: %v, %v; want %v, %v", s, s.Fault(), s.Remedy(), w.fault, w.remedy)
		}
	}
}

// Both print in words, all different, and none is forgotten.
func TestFaultWords(t *testing.T) {
	seen := map[string]bool{}
	for f := FaultNone; f <= FaultConsequence; f++ {
		seen[f.String()] = true
	}
	for r := RemedyNone; r <= RemedyReopen; r++ {
		seen[r.String()] = true
	}
	if len(seen) != int(FaultConsequence)+int(RemedyReopen)+2 || len(faults) != int(FaultConsequence)+1 || len(remedies) != int(RemedyReopen)+1 {
		t.Error(seen)
	}
	for s := range seen {
		if strings.Contains(s, "(") || s == "" {
			t.Errorf("%q is no word", s)
		}
	}
	if s := fmt.Sprint(Fault(99), Remedy(200)); s != "Fault(99) Remedy(200)" {
		t.Error(s)
	}
}
