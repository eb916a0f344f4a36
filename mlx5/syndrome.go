package mlx5

import (
	"fmt"

	"github.com/goverbs/goverbs/cq"
)

// Syndrome is the error class of a failed completion: byte 55 of an error CQE
// (enum mlx5_cqe_syndrome, linux/mlx5/device.h). It decides the completion's
// status; [VendorSyndrome] only refines it for people.
type Syndrome uint8

// The syndromes that the driver headers name. Devices know a few more
// (see [Syndrome.String]); programs see those as general errors.
const (
	SyndromeLocalLength       Syndrome = 0x01
	SyndromeLocalQPOperation  Syndrome = 0x02
	SyndromeLocalProtection   Syndrome = 0x04
	SyndromeFlushed           Syndrome = 0x05
	SyndromeMWBind            Syndrome = 0x06
	SyndromeBadResponse       Syndrome = 0x10
	SyndromeLocalAccess       Syndrome = 0x11
	SyndromeRemoteInvalidReq  Syndrome = 0x12
	SyndromeRemoteAccess      Syndrome = 0x13
	SyndromeRemoteOperation   Syndrome = 0x14
	SyndromeRetryExceeded     Syndrome = 0x15
	SyndromeRNRRetryExceeded  Syndrome = 0x16
	SyndromeRemoteAborted     Syndrome = 0x22
	syndromeLocalEEC          Syndrome = 0x03
	syndromeLocalRDDViolation Syndrome = 0x20
	syndromeRemoteInvalidRD   Syndrome = 0x21
	syndromeInvalidEECN       Syndrome = 0x23
	syndromeInvalidEECState   Syndrome = 0x24
)

var syndromes = [...]struct {
	name   string
	status cq.Status
}{
	SyndromeLocalLength:      {"local length error", cq.StatusLocalLength},
	SyndromeLocalQPOperation: {"local QP operation error", cq.StatusLocalQPOperation},
	SyndromeLocalProtection:  {"local protection error", cq.StatusLocalProtection},
	SyndromeFlushed:          {"flushed", cq.StatusFlushed},
	SyndromeMWBind:           {"memory window bind error", cq.StatusMWBind},
	SyndromeBadResponse:      {"bad response", cq.StatusBadResponse},
	SyndromeLocalAccess:      {"local access error", cq.StatusLocalAccess},
	SyndromeRemoteInvalidReq: {"remote invalid request", cq.StatusRemoteInvalidReq},
	SyndromeRemoteAccess:     {"remote access error", cq.StatusRemoteAccess},
	SyndromeRemoteOperation:  {"remote operation error", cq.StatusRemoteOperation},
	SyndromeRetryExceeded:    {"transport retry exceeded", cq.StatusRetryExceeded},
	SyndromeRNRRetryExceeded: {"RNR retry exceeded", cq.StatusRNRRetryExceeded},
	SyndromeRemoteAborted:    {"remote aborted", cq.StatusRemoteAborted},
	// Reliable datagrams were never built; the codes exist, the drivers
	// report them as general errors.
	syndromeLocalEEC:          {"local EE context operation error", cq.StatusGeneral},
	syndromeLocalRDDViolation: {"local RDD violation", cq.StatusGeneral},
	syndromeRemoteInvalidRD:   {"remote invalid RD request", cq.StatusGeneral},
	syndromeInvalidEECN:       {"invalid EE context number", cq.StatusGeneral},
	syndromeInvalidEECState:   {"invalid EE context state", cq.StatusGeneral},
}

// Known says whether the syndrome is one that devices are known to write.
func (s Syndrome) Known() bool { return int(s) < len(syndromes) && syndromes[s].name != "" }

// Status is the completion status that the syndrome stands for, as all mlx5
// drivers map it: what they do not know is [cq.StatusGeneral].
func (s Syndrome) Status() cq.Status {
	if !s.Known() {
		return cq.StatusGeneral
	}
	return syndromes[s].status
}

// String is the short name of the syndrome, or Syndrome(0xNN).
func (s Syndrome) String() string {
	if s.Known() {
		return syndromes[s].name
	}
	return fmt.Sprintf("Syndrome(%#02x)", uint8(s))
}

// SyndromeOf is the syndrome that stands for a status: the reverse of
// [Syndrome.Status]. ok is false for statuses that no syndrome gives alone.
func SyndromeOf(s cq.Status) (syn Syndrome, ok bool) {
	if s == cq.StatusGeneral {
		return 0, false
	}
	for i := range syndromes {
		if syndromes[i].name != "" && syndromes[i].status == s {
			return Syndrome(i), true
		}
	}
	return 0, false
}
