package cq

import "strconv"

// Fault is whose fault it most likely is that a request failed. It prints in words.
type Fault uint8

// Where to look first.
const (
	// FaultNone: nothing failed.
	FaultNone Fault = iota
	// FaultProgram: this program asked for what cannot be, or for what it has
	// not agreed on with the peer: a buffer, a key, a right, a length.
	FaultProgram
	// FaultPeer: the program or the device at the other end.
	FaultPeer
	// FaultPath: what lies between, or there is nobody at the other end any
	// more. This side cannot tell the two apart.
	FaultPath
	// FaultDevice: this side's device, its firmware or its driver.
	FaultDevice
	// FaultConsequence: nothing was wrong with the request. Its queue pair had
	// failed before, or was taken down: look at what came first.
	FaultConsequence
)

var faults = [...]string{
	FaultNone: "nobody", FaultProgram: "this program", FaultPeer: "the peer", FaultPath: "the path, or nobody is at its end",
	FaultDevice: "this device", FaultConsequence: "an earlier failure",
}

// String says it in words, or Fault(n).
func (f Fault) String() string {
	if int(f) < len(faults) {
		return faults[f]
	}
	return "Fault(" + strconv.Itoa(int(f)) + ")"
}

// Remedy is the least that makes a queue pair of use again on which a request failed.
// Each one includes those before it, so the greatest of several is enough for all. It
// prints in words.
type Remedy uint8

// What to do, from the least on.
const (
	// RemedyNone: go on.
	RemedyNone Remedy = iota
	// RemedyReset: reset the queue pair at both ends and connect the two again.
	// Peer and path are where they were; what was agreed on holds, once the cause
	// of the failure is mended.
	RemedyReset
	// RemedyReconnect: find out where the peer is, or whether there is one, over
	// another way than this queue pair; then reset and connect anew. The addresses
	// and keys of before may be void.
	RemedyReconnect
	// RemedyReopen: the device failed or is gone. Close it with all that stands on
	// it, and open it, or another one, again.
	RemedyReopen
)

var remedies = [...]string{
	RemedyNone: "nothing", RemedyReset: "reset and connect the queue pair again", RemedyReconnect: "find the peer, and connect anew",
	RemedyReopen: "open the device again, or another one",
}

// String says it in words, or Remedy(n).
func (r Remedy) String() string {
	if int(r) < len(remedies) {
		return remedies[r]
	}
	return "Remedy(" + strconv.Itoa(int(r)) + ")"
}

// What to make of each status. The meanings are those of "Completion Return Status" of
// the InfiniBand Architecture Specification (volume 1, 11.6.2), and of the manual page
// of ibv_poll_cq where it is more outspoken; where soft-RoCE uses a status for
// something else, as seen on Linux 5.10 to 6.12, the fault is one that covers both.
// Reliable datagrams were never built: a device that speaks of their contexts errs.
var verdicts = [...]struct {
	fault  Fault
	remedy Remedy
}{
	StatusSuccess:     {FaultNone, RemedyNone},
	StatusLocalLength: {FaultProgram, RemedyReset},
	// Also a receive shorter than its message, and a stale lkey, on soft-RoCE.
	StatusLocalQPOperation: {FaultProgram, RemedyReset},
	StatusLocalEEC:         {FaultDevice, RemedyReset},
	StatusLocalProtection:  {FaultProgram, RemedyReset},
	StatusFlushed:          {FaultConsequence, RemedyReset},
	StatusMWBind:           {FaultProgram, RemedyReset},
	// Nobody answers so who was connected as agreed.
	StatusBadResponse:      {FaultPeer, RemedyReconnect},
	StatusLocalAccess:      {FaultPeer, RemedyReset},
	StatusRemoteInvalidReq: {FaultProgram, RemedyReset},
	StatusRemoteAccess:     {FaultProgram, RemedyReset},
	// Also a message longer than its receive, on soft-RoCE: the two ends do not
	// agree, and it is the receiver that failed.
	StatusRemoteOperation: {FaultPeer, RemedyReset},
	// Also a wrong rkey, on soft-RoCE of Linux 5.10, which does not say why.
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
}

// Fault is whose fault it most likely is. The status is what one end has seen, so this
// is where to look first, and no proof. A status that InfiniBand does not define is
// the device's.
func (s Status) Fault() Fault {
	if int64(s) < int64(len(verdicts)) {
		return verdicts[s].fault
	}
	return FaultDevice
}

// Remedy is the least that makes the queue pair of use again. That of a flushed request
// is at least a reset; its cause may ask for more, which uverbs.QP.FirstFailure
// tells. What to make of a status that InfiniBand does not define nobody knows: find
// the peer and connect anew, which does all that can be done short of the device, whose
// end is reported by other means.
func (s Status) Remedy() Remedy {
	if int64(s) < int64(len(verdicts)) {
		return verdicts[s].remedy
	}
	return RemedyReconnect
}
