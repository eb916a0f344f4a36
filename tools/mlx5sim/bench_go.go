package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// benchClient is the program in Go that mlx5sim bench measures. It does as
// testdata/bench/client.c does, with goverbs in place of libibverbs, and speaks as that: a line is
// asked, of a word and numbers, and answered by "ok" and numbers, or "error" and a sentence.
//
//	setup QPS ENTRIES DEPTH    make queues; says the number of the first queue pair
//	post EACH                  post short sends to each queue pair
//	receives EACH              post receives
//	polls BATCH LEAD N BLOCK   poll LEAD and N; says a time, the sum of the ids, how many
//	                           failed, and 1 if all that failed were flushed
//	empty BATCH N BLOCK        poll an empty queue N times; says a time
//	sends BATCH LEAD N BLOCK   post LEAD and N inline sends of 64 bytes; says a time
//	teardown                   destroy the queues
//
// Times are those of a BLOCK of the N, in ns, without what looking at the clock takes: their
// median, which what interrupts some of them does not move.
type benchClient struct {
	dev       *uverbs.Device
	pd        *uverbs.PD
	mem       *uverbs.Memory
	mr        *uverbs.MR
	cq        *uverbs.CQ
	qps       []*uverbs.QP
	nextID    uint64
	clockCost time.Duration
	took      []time.Duration // of blocks
	wcs       [benchMostBatch]uverbs.WC
	data      [benchInlineBytes]byte
}

const (
	benchMostBatch   = 64
	benchInlineBytes = 64 // of what is timed
	benchShortBytes  = 16 // of what is posted to be completed
	benchChunk       = 32 // requests a doorbell of what is not timed
	benchMostBlocks  = 1 << 10
	benchIdle        = 1 << 28
)

// runBenchClient runs it on one processor.
func runBenchClient(cpu int, in io.Reader, out io.Writer) error {
	runtime.LockOSThread()
	if err := pin(cpu); err != nil {
		return err
	}
	if err := smallPages(); err != nil {
		return err
	}
	b := &benchClient{nextID: 1}
	b.calibrate()
	if err := b.open(); err != nil {
		return err
	}
	fmt.Fprintln(out, "ok")
	for lines := bufio.NewScanner(in); lines.Scan(); {
		answer, err := b.obey(lines.Text())
		if err != nil {
			return err
		}
		fmt.Fprintln(out, "ok"+answer)
	}
	return nil
}

// calibrate finds out what looking at the clock takes.
func (b *benchClient) calibrate() {
	b.took = make([]time.Duration, 0, benchMostBlocks)
	for range benchMostBlocks {
		b.block(time.Now())
	}
	b.clockCost = b.median()
}

// block ends a block that began at a time.
func (b *benchClient) block(begin time.Time) {
	b.took = append(b.took, max(0, time.Since(begin)-b.clockCost))
}

// median is that of the blocks so far, and forgets them.
func (b *benchClient) median() time.Duration {
	slices.Sort(b.took)
	m := b.took[len(b.took)/2]
	b.took = b.took[:0]
	return m
}

func (b *benchClient) open() error {
	infos, err := uverbs.Devices()
	if err != nil {
		return err
	}
	if b.dev, err = uverbs.Open(infos[0].Name, nil); err != nil {
		return err
	}
	if b.pd, err = b.dev.NewPD(); err != nil {
		return err
	}
	if b.mem, err = uverbs.Alloc(os.Getpagesize(), nil); err != nil {
		return err
	}
	b.mr, err = b.pd.Register(b.mem.Bytes(), uverbs.LocalWrite)
	return err
}

// obey does what a line says.
func (b *benchClient) obey(line string) (answer string, err error) {
	var what string
	var n [4]int
	if _, err := fmt.Sscan(line+" 0 0 0 0", &what, &n[0], &n[1], &n[2], &n[3]); err != nil {
		return "", fmt.Errorf("%q: %w", line, err)
	}
	batch := min(n[0], benchMostBatch)
	switch what {
	case "setup":
		err = b.setup(n[0], n[1], n[2])
		if err == nil {
			answer = fmt.Sprintf(" %d", b.qps[0].QPN())
		}
	case "post":
		err = b.post(n[0])
	case "receives":
		err = b.receives(n[0])
	case "polls":
		answer, err = b.timePolls(batch, n[1], n[2], n[3])
	case "empty":
		answer, err = b.timeEmpty(batch, n[1], n[2])
	case "sends":
		answer, err = b.timeSends(batch, n[1], n[2], n[3])
	case "teardown":
		err = b.teardown()
	default:
		err = fmt.Errorf("cannot %q", line)
	}
	return answer, err
}

func (b *benchClient) setup(qps, entries, depth int) (err error) {
	if b.cq, err = b.dev.NewCQ(entries-1, nil); err != nil {
		return err
	}
	for range qps {
		qp, err := b.pd.NewQP(uverbs.RC, &uverbs.QPOptions{CQ: b.cq, SendDepth: depth, RecvDepth: depth, Inline: benchInlineBytes, AllowOverrun: true})
		if err != nil {
			return err
		}
		b.qps = append(b.qps, qp)
		if err := qp.Connect(context.Background(), qp.Endpoint(), nil); err != nil { // nothing is sent
			return err
		}
	}
	runtime.GC()
	return nil
}

func (b *benchClient) teardown() error {
	for _, qp := range b.qps {
		if err := qp.Close(); err != nil {
			return err
		}
	}
	b.qps = nil
	return b.cq.Close()
}

// send posts n sends, batch at a time.
func (b *benchClient) send(qp *uverbs.QP, batch, n int, data []byte) error {
	sq, id := qp.SendQueue(), b.nextID
	for ; n > 0; n -= batch {
		for range batch {
			sq.SendInline(id, data)
			id++
		}
		if err := sq.Flush(); err != nil {
			return err
		}
	}
	b.nextID = id
	return nil
}

func (b *benchClient) post(each int) error {
	batch := benchChunk
	if each%batch != 0 {
		batch = 1
	}
	for _, qp := range b.qps {
		if err := b.send(qp, batch, each, b.data[:benchShortBytes]); err != nil {
			return err
		}
	}
	return nil
}

func (b *benchClient) receives(each int) error {
	for _, qp := range b.qps {
		rq := qp.RecvQueue()
		for range each {
			rq.Recv(b.nextID, b.mr.Span(0, benchInlineBytes))
			b.nextID++
		}
		if err := rq.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func (b *benchClient) timeSends(batch, lead, n, block int) (string, error) {
	if err := b.send(b.qps[0], batch, lead, b.data[:]); err != nil {
		return "", err
	}
	for ; n > 0; n -= block {
		begin := time.Now()
		err := b.send(b.qps[0], batch, block, b.data[:])
		b.block(begin)
		if err != nil {
			return "", err
		}
	}
	return fmt.Sprintf(" %d", b.median().Nanoseconds()), nil
}

// benchTally is what was polled.
type benchTally struct {
	sum    uint64 // of the ids
	failed uint64 // how many had a status
	any    uverbs.Status
}

// poll polls n completions, batch at a time.
func (b *benchClient) poll(batch, n int, to *benchTally) error {
	wcs, t, idle := b.wcs[:batch], *to, 0
	for n > 0 {
		k, err := b.cq.Poll(wcs)
		if k == 0 {
			if idle++; err != nil || idle > benchIdle {
				return errors.Join(err, errors.New("completions do not come"))
			}
		}
		for i := range wcs[:k] {
			w := &wcs[i]
			t.sum += w.ID
			if w.Status != uverbs.StatusSuccess {
				t.failed++
			}
			t.any |= w.Status
		}
		n -= k
	}
	*to = t
	return nil
}

func (b *benchClient) timePolls(batch, lead, n, block int) (string, error) {
	var t benchTally
	if err := b.poll(batch, lead, &t); err != nil {
		return "", err
	}
	for ; n > 0; n -= block {
		begin := time.Now()
		err := b.poll(batch, block, &t)
		b.block(begin)
		if err != nil {
			return "", err
		}
	}
	flushed := 0
	if t.any == uverbs.StatusFlushed {
		flushed = 1
	}
	return fmt.Sprintf(" %d %d %d %d", b.median().Nanoseconds(), t.sum, t.failed, flushed), nil
}

// pollEmpty polls n times and returns how many completions came, and how many errors.
func (b *benchClient) pollEmpty(batch, n int) (found int) {
	wcs := b.wcs[:batch]
	for range n {
		k, err := b.cq.Poll(wcs)
		if err != nil {
			k++
		}
		found += k
	}
	return found
}

func (b *benchClient) timeEmpty(batch, n, block int) (string, error) {
	for ; n > 0; n -= block {
		begin := time.Now()
		found := b.pollEmpty(batch, block)
		b.block(begin)
		if found != 0 {
			return "", errors.New("completions or errors out of nothing")
		}
	}
	return fmt.Sprintf(" %d", b.median().Nanoseconds()), nil
}
