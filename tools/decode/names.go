package decode

import (
	"strings"
	"sync"

	"github.com/goverbs/goverbs/cq"
)

// phrase is how a program writes a status in words: the beginning of it, as
// words of a line, enough to know it.
type phrase struct {
	words  []string
	status cq.Status
	// weak phrases are used for other things too; they count only where
	// the line itself is about a completion.
	weak bool
	// needs is a word that must follow, for phrases that other events
	// share ("local access violation" is an asynchronous one).
	needs string
}

// phrases has the names that the kernel, libibverbs, UCX, Open MPI and others
// print, longest first where one begins another.
var phrases = sync.OnceValue(func() map[string][]phrase {
	return makePhrases([]phraseSource{
		{cq.StatusLocalLength, "local length", "", "error"},
		{cq.StatusLocalQPOperation, "local qp operation", "", "err"},
		{cq.StatusLocalQPOperation, "local qp op error", "", ""},
		{cq.StatusLocalEEC, "local ee context operation", "", ""},
		{cq.StatusLocalProtection, "local protection", "", "err"},
		{cq.StatusFlushed, "work request flushed", "", ""},
		{cq.StatusFlushed, "wr flushed", "", ""},
		{cq.StatusFlushed, "request flushed", "", ""},
		{cq.StatusFlushed, "flush error", "weak", ""},
		{cq.StatusMWBind, "memory window bind", "", ""},
		{cq.StatusMWBind, "memory bind operation", "", ""},
		{cq.StatusMWBind, "memory management operation", "", ""},
		{cq.StatusMWBind, "mw bind error", "", ""},
		{cq.StatusBadResponse, "bad response", "weak", "error"},
		{cq.StatusLocalAccess, "local access", "", "error"},
		{cq.StatusRemoteInvalidReq, "remote invalid request", "", ""},
		{cq.StatusRemoteAccess, "remote access", "", "error"},
		{cq.StatusRemoteOperation, "remote operation", "", "error"},
		{cq.StatusRetryExceeded, "transport retry counter exceeded", "", ""},
		{cq.StatusRetryExceeded, "transport retry count exceeded", "", ""},
		{cq.StatusRetryExceeded, "transport retry exceeded", "", ""},
		{cq.StatusRNRRetryExceeded, "rnr retry counter exceeded", "", ""},
		{cq.StatusRNRRetryExceeded, "rnr retry count exceeded", "", ""},
		{cq.StatusRNRRetryExceeded, "rnr retry exceeded", "", ""},
		{cq.StatusRNRRetryExceeded, "receive - no - ready retry", "", ""},
		{cq.StatusLocalRDDViolation, "local rdd violation", "", ""},
		{cq.StatusRemoteInvalidRD, "remote invalid rd request", "", ""},
		{cq.StatusRemoteAborted, "remote side aborted", "", ""},
		{cq.StatusRemoteAborted, "remote aborted", "weak", ""},
		{cq.StatusRemoteAborted, "operation aborted", "weak", ""},
		{cq.StatusRemoteAborted, "aborted error", "weak", ""},
		{cq.StatusInvalidEECN, "invalid ee context number", "", ""},
		{cq.StatusInvalidEECState, "invalid ee context state", "", ""},
		{cq.StatusFatal, "fatal error", "weak", ""},
		{cq.StatusResponseTimeout, "response timeout error", "weak", ""},
		{cq.StatusGeneral, "general error", "weak", ""},
	})
})

type phraseSource struct {
	status            cq.Status
	words, weak, need string
}

func makePhrases(src []phraseSource) map[string][]phrase {
	m := make(map[string][]phrase)
	for _, s := range src {
		w := strings.Fields(s.words)
		m[w[0]] = append(m[w[0]], phrase{words: w, status: s.status, weak: s.weak != "", needs: s.need})
	}
	return m
}

// identifiers are the names of the statuses in programs, without their prefix.
var identifiers = sync.OnceValue(func() map[string]cq.Status {
	return map[string]cq.Status{
		"loc_len_err": 1, "loc_qp_op_err": 2, "loc_eec_op_err": 3, "loc_prot_err": 4, "wr_flush_err": 5,
		"mw_bind_err": 6, "bad_resp_err": 7, "loc_access_err": 8, "rem_inv_req_err": 9, "rem_access_err": 10,
		"rem_op_err": 11, "retry_exc_err": 12, "rnr_retry_exc_err": 13, "loc_rdd_viol_err": 14,
		"rem_inv_rd_req_err": 15, "rem_abort_err": 16, "inv_eecn_err": 17, "inv_eec_state_err": 18,
		"fatal_err": 19, "resp_timeout_err": 20, "general_err": 21,
	}
})

// identifier looks a word up among them, with or without IBV_WC_ or IB_WC_.
func identifier(word string) (cq.Status, bool) {
	if i := strings.Index(word, "wc_"); i >= 0 {
		word = word[i+3:]
	} else if word == "fatal_err" || word == "general_err" {
		return 0, false
	}
	s, ok := identifiers()[word]
	return s, ok
}

// eventNames are the kernel's names of the statuses, by number. The line that
// mlx5_ib prints for a QP that failed looks the device's syndrome up in this
// table of statuses, so its words are wrong from 7 on; their number is right.
var eventNames = sync.OnceValue(func() map[string]uint8 {
	return map[string]uint8{
		"local length error":               1,
		"local qp operation error":         2,
		"local ee context operation error": 3,
		"local protection error":           4,
		"wr flushed":                       5,
		"memory bind operation error":      6,
		"bad response error":               7,
		"local access error":               8,
		"remote invalid request error":     9,
		"remote access error":              10,
		"remote operation error":           11,
		"transport retry counter exceeded": 12,
		"rnr retry counter exceeded":       13,
		"local rdd violation error":        14,
		"remote invalid rd request":        15,
		"operation aborted":                16,
		"invalid ee context number":        17,
		"invalid ee context state":         18,
		"fatal error":                      19,
		"response timeout error":           20,
		"general error":                    21,
	}
})

// foreign are the beginnings of the names of drivers and devices whose vendor
// codes are not those of mlx5.
var foreign = []struct{ prefix, name string }{
	{"mthca", "mthca (InfiniHost)"},
	{"mlx4", "mlx4 (ConnectX-3 and before)"},
	{"bnxt", "Broadcom (bnxt_re)"},
	{"irdma", "Intel (irdma)"},
	{"i40iw", "Intel (i40iw)"},
	{"siw", "soft-iWARP (siw)"},
	{"rxe", "soft-RoCE (rxe)"},
	{"hns", "HiSilicon (hns)"},
	{"efa", "Amazon (efa)"},
	{"qedr", "Marvell (qedr)"},
	{"erdma", "Alibaba (erdma)"},
	{"mana", "Microsoft (mana)"},
	{"cxgb4", "Chelsio (cxgb4)"},
	{"ocrdma", "Emulex (ocrdma)"},
	{"pvrdma", "VMware (pvrdma)"},
	{"vmw_pvrdma", "VMware (pvrdma)"},
	{"hfi1", "Intel (hfi1)"},
	{"ionic", "AMD Pensando (ionic)"},
	{"zxdh", "ZTE (zxdh)"},
}

// foreignDevice says which other family a word names: the prefix, then nothing,
// an underscore or the number of the device.
func foreignDevice(word string) string {
	for _, p := range []string{"ib_", "iw_", "lib"} {
		word = strings.TrimPrefix(word, p)
	}
	for _, f := range foreign {
		rest, ok := strings.CutPrefix(word, f.prefix)
		if ok && (rest == "" || rest[0] == '_' || rest[0] >= '0' && rest[0] <= '9') {
			return f.name
		}
	}
	return ""
}
