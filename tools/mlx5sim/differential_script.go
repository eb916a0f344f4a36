package main

import (
	"math/rand/v2"
	"strconv"
)

// A script is what both programs of the differential carry out: a text of words, each a letter
// and numbers in decimal. Objects are called by the order in which they were made, each kind by
// itself; places in the data are offsets.
//
//	B address bytes gid              makes the data, opens the device
//	P                                makes a PD
//	M pd off len access              registers data
//	W pd                             makes a memory window
//	C depth events                   makes a CQ, with a channel if events is not 0
//	S pd depth sge                   makes an SRQ
//	Q type pd scq rcq srq sends receives ssge rsge inline access qkey
//	                                 makes a QP and takes it to INIT, a UD one to RTS; srq is one more than its number, or 0
//	A pd sl class flow               makes an AH to the port itself
//	N qp peer psn peerpsn mtu        takes a QP to RTR and RTS
//	I qp                             takes it from RESET to where Q left it
//	X qp state                       takes it to RESET or ERR
//	s qp n request...                posts sends in one go
//	r qp n list...                   posts receives
//	u srq n list...                  posts receives to an SRQ
//	p cq n                           polls for up to n completions, once
//	a cq solicited                   arms
//	e cq                             takes an event, if there is one
//	z cq depth                       resizes, and polls for one: libmlx5 tells the device only then
//	l srq limit                      sets the limit
//	o cq count                       lets events wait for so many completions
//	g qp join                        joins a multicast group, or leaves it if join is 0
//	R mr access                      registers the region again, in the same PD with other rights
//	d kind number                    destroys; kind is the letter that makes it
//	h                                says a sum of the data
//
// After s and a both ask for the state of queue pair 0, which does nothing else. That is a call of
// the kernel's, before which the device does all that was posted, and the end of a step.
//
// A list is n and n times mr, off and len. A request is a kind, flags, a list, an immediate (or a
// number of bytes to bind), where the remote key comes from and of which object, an offset, and two
// numbers: of atomics the operands, of a bind the region and its rights, of a datagram the QP
// and its Q_Key, where the object is the AH.
const (
	wordBegin      = 'B'
	wordPD         = 'P'
	wordMR         = 'M'
	wordMW         = 'W'
	wordCQ         = 'C'
	wordSRQ        = 'S'
	wordQP         = 'Q'
	wordAH         = 'A'
	wordConnect    = 'N'
	wordInit       = 'I'
	wordState      = 'X'
	wordSend       = 's'
	wordRecv       = 'r'
	wordSharedRecv = 'u'
	wordPoll       = 'p'
	wordArm        = 'a'
	wordEvent      = 'e'
	wordResize     = 'z'
	wordLimit      = 'l'
	wordModerate   = 'o'
	wordGroup      = 'g'
	wordRereg      = 'R'
	wordDestroy    = 'd'
	wordDigest     = 'h'
)

// Kinds of requests.
const (
	kindSend = iota
	kindSendImm
	kindWrite
	kindWriteImm
	kindRead
	kindCAS
	kindFAA
	kindSendInv
	kindLocalInv
	kindBind
)

// Flags of requests.
const (
	flagSignaled = 1 << iota
	flagFence
	flagSolicited
	flagInline
)

// Where a remote key comes from.
const (
	keyRegion = iota
	keyWindow
	keyBad
)

// Types and states of queue pairs, access and Q_Key, as the kernel numbers them.
const (
	transportRC = 2
	transportUC = 3
	transportUD = 4

	stateReset = 0
	stateErr   = 6

	accessAll  = 0x0f // local write; remote write, read and atomics
	accessPeer = 0x0e
	accessBind = 0x10

	qkey = 0x11111111
)

const (
	dataAt    = uint64(0x2000_0000_0000)
	dataBytes = 1 << 20
	// mostPolled is how many completions a word polls for at most, mostPosted how many
	// requests one posts.
	mostPolled = 1024
	mostPosted = 40
)

// Regions of a script.
const (
	regionAll     = iota // everything allowed
	regionPrivate        // of its own PD, the first half: nothing allowed to peers
	regionForeign        // of the other PD
	regions
)

// words writes a script.
type words struct {
	text  []byte
	steps int
}

func (w *words) put(letter byte, numbers ...int) {
	w.text = append(w.text, letter)
	w.add(numbers...)
	if letter == wordSend || letter == wordArm {
		w.steps++
	}
}

func (w *words) add(numbers ...int) {
	for _, n := range numbers {
		w.text = strconv.AppendUint(append(w.text, ' '), uint64(n), 10)
	}
}

// begin writes the first line. The address of the data fits no int on some systems.
func (w *words) begin(gid int) {
	w.put(wordBegin)
	w.text = strconv.AppendUint(append(w.text, ' '), dataAt, 10)
	w.add(dataBytes, gid)
	w.end()
}

// end ends a word.
func (w *words) end() {
	w.text = append(w.text, '\n')
}

func (w *words) line(letter byte, numbers ...int) {
	w.put(letter, numbers...)
	w.end()
}

// A piece is a place of data to send from or receive into.
type piece struct{ mr, off, n int }

func (w *words) list(l []piece) {
	w.add(len(l))
	for _, p := range l {
		w.add(p.mr, p.off, p.n)
	}
}

// A sendWords is a request of the send queue.
type sendWords struct {
	kind, flags int
	pieces      []piece
	imm         int
	from, of    int
	off         int
	arg1, arg2  int
}

func (w *words) request(r *sendWords) {
	w.add(r.kind, r.flags)
	w.list(r.pieces)
	w.add(r.imm, r.from, r.of, r.off, r.arg1, r.arg2)
}

// chance is true n times of a hundred.
func chance(r *rand.Rand, n int) bool { return r.IntN(100) < n }

// pick is one of several.
func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// size is a number of bytes up to most, small ones and none at all more often than others.
func size(r *rand.Rand, most int) int {
	n := 0
	switch c := r.IntN(100); {
	case c < 10:
	case c < 50:
		n = r.IntN(65)
	case c < 90:
		n = r.IntN(4097)
	default:
		n = r.IntN(16385)
	}
	return min(n, most)
}

// pieces cuts n bytes into up to most pieces anywhere in the data; some are empty.
func pieces(r *rand.Rand, mr, n, most int) []piece {
	count := 1
	if most > 1 && chance(r, 60) {
		count = 1 + r.IntN(most)
	}
	if n == 0 && chance(r, 30) {
		return nil
	}
	var l []piece
	for i := range count {
		k := n
		if i < count-1 {
			k = 0
			if !chance(r, 15) {
				k = r.IntN(n + 1)
			}
		}
		n -= k
		l = append(l, piece{mr, r.IntN(dataBytes - k), k})
	}
	return l
}
