package cq

import "strconv"

// Status is how a work request ended. The numbers are those of enum
// ib_wc_status (include/rdma/ib_verbs.h), which is also what libibverbs and
// the kernel's logs print. A Status is an error, so that
// errors.Is(err, cq.StatusRetryExceeded) works on what [WC.Err] returns.
type Status uint32

// The statuses that InfiniBand defines.
const (
	StatusSuccess           Status = 0
	StatusLocalLength       Status = 1
	StatusLocalQPOperation  Status = 2
	StatusLocalEEC          Status = 3
	StatusLocalProtection   Status = 4
	StatusFlushed           Status = 5
	StatusMWBind            Status = 6
	StatusBadResponse       Status = 7
	StatusLocalAccess       Status = 8
	StatusRemoteInvalidReq  Status = 9
	StatusRemoteAccess      Status = 10
	StatusRemoteOperation   Status = 11
	StatusRetryExceeded     Status = 12
	StatusRNRRetryExceeded  Status = 13
	StatusLocalRDDViolation Status = 14
	StatusRemoteInvalidRD   Status = 15
	StatusRemoteAborted     Status = 16
	StatusInvalidEECN       Status = 17
	StatusInvalidEECState   Status = 18
	StatusFatal             Status = 19
	StatusResponseTimeout   Status = 20
	StatusGeneral           Status = 21
)

var statuses = [...]struct{ name, text string }{
	StatusSuccess:           {"success", "success"},
	StatusLocalLength:       {"local length error", "the message does not fit the local buffer or the device's limit"},
	StatusLocalQPOperation:  {"local QP operation error", "the device found the request itself, or the state of its QP, inconsistent; on a receive over soft-RoCE, the message was longer than the receive"},
	StatusLocalEEC:          {"local EE context operation error", "the end-to-end context of a reliable datagram is inconsistent"},
	StatusLocalProtection:   {"local protection error", "an lkey of the request does not cover its buffer, or belongs to another PD"},
	StatusFlushed:           {"flushed", "the QP went to the error state before the request was carried out; the first error on it has the cause"},
	StatusMWBind:            {"memory window bind error", "the memory window could not be bound"},
	StatusBadResponse:       {"bad response", "the peer answered with something that the transport does not allow"},
	StatusLocalAccess:       {"local access error", "the peer wrote where the local memory region does not allow it"},
	StatusRemoteInvalidReq:  {"remote invalid request", "the peer could not accept the request: too long for its buffer, or not enabled on its QP"},
	StatusRemoteAccess:      {"remote access error", "the rkey does not cover the remote address, or does not allow the operation"},
	StatusRemoteOperation:   {"remote operation error", "the peer failed while carrying out the request; over soft-RoCE, often the message was longer than its receive"},
	StatusRetryExceeded:     {"transport retry exceeded", "the peer did not acknowledge: it is gone, unreachable, or its QP is not ready"},
	StatusRNRRetryExceeded:  {"RNR retry exceeded", "the peer had no receive posted for too long"},
	StatusLocalRDDViolation: {"local RDD violation", "the reliable datagram domain does not match"},
	StatusRemoteInvalidRD:   {"remote invalid RD request", "the peer refused a reliable datagram"},
	StatusRemoteAborted:     {"remote aborted", "the peer's queue aborted the operation"},
	StatusInvalidEECN:       {"invalid EE context number", "the end-to-end context does not exist"},
	StatusInvalidEECState:   {"invalid EE context state", "the end-to-end context is in the wrong state"},
	StatusFatal:             {"fatal error", "the device failed"},
	StatusResponseTimeout:   {"response timeout", "no answer came in time"},
	StatusGeneral:           {"general error", "the device reports an error of its own kind"},
}

// String is the short name of the status, or Status(n) for a number that
// InfiniBand does not define.
func (s Status) String() string {
	if int64(s) < int64(len(statuses)) {
		return statuses[s].name
	}
	return "Status(" + strconv.FormatUint(uint64(s), 10) + ")"
}

// Describe is the short name, the number and one sentence on what it usually
// means.
func (s Status) Describe() string {
	n := strconv.FormatUint(uint64(s), 10)
	if int64(s) < int64(len(statuses)) {
		return statuses[s].name + " (status " + n + "): " + statuses[s].text
	}
	return "unknown completion status " + n
}

// Error makes a Status usable as a target of errors.Is. It is the short name,
// which is also what %v prints.
func (s Status) Error() string { return s.String() }
