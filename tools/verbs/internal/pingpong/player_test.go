package pingpong

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/uverbs"
)

// fakeLink is one end of a pair that carries messages as an RC queue pair does:
// each needs a receive at the other end, and ends in a completion at both.
type fakeLink struct {
	peer        *fakeLink
	buf, from   []byte // received into, sent from
	posted      int    // receives
	maxPosted   int
	outstanding bool // a send
	sends       int
	done        []uverbs.WC
	runPeer     func() // lets the other side play until it waits

	most        int           // completions that a wait returns
	recvFirst   bool          // the receive's completion overtakes the send's
	status      uverbs.Status // of sends
	lie         int           // added to the size of what is received
	sendRefused error
	failure     error // of waits
}

func (l *fakeLink) recv(n int) error {
	l.posted += n
	l.maxPosted = max(l.maxPosted, l.posted)
	return nil
}

func (l *fakeLink) send() error {
	switch {
	case l.sendRefused != nil:
		return l.sendRefused
	case l.outstanding:
		return errors.New("a second send: the queue takes one")
	case l.peer.posted == 0:
		return errors.New("the other side has no receive posted")
	}
	l.outstanding = true
	l.sends++
	l.peer.posted--
	copy(l.peer.buf, l.from)
	own := uverbs.WC{ID: sendID, Side: uverbs.SendSide, Status: l.status}
	l.peer.done = append(l.peer.done, uverbs.WC{ID: recvID, Side: uverbs.RecvSide, Bytes: uint32(len(l.from) + l.peer.lie)})
	l.done = append(l.done, own)
	return nil
}

func (l *fakeLink) wait(wcs []uverbs.WC) (int, error) {
	for range 2 {
		if l.failure != nil {
			return 0, l.failure
		}
		if l.recvFirst && len(l.done) == 2 && l.done[0].Side == uverbs.SendSide {
			l.done[0], l.done[1] = l.done[1], l.done[0]
		}
		n := copy(wcs[:min(len(wcs), l.most)], l.done)
		l.done = l.done[n:]
		for _, w := range wcs[:n] {
			if w.Side == uverbs.SendSide {
				l.outstanding = false
			}
		}
		if n > 0 {
			return n, nil
		}
		l.runPeer()
	}
	return 0, fmt.Errorf("both sides wait: %d sends here and %d there", l.sends, l.peer.sends)
}

// match is a game in one process. The server plays in a coroutine that stops
// where it waits.
type match struct {
	client, server   player
	clink, slink     *fakeLink
	serverErr        error
	resume, yield    chan struct{}
	serverHasStopped bool
}

func newMatch(size, iters, depth int, check bool) *match {
	m := &match{resume: make(chan struct{}), yield: make(chan struct{})}
	newSide := func(isClient bool) (*fakeLink, player) {
		l := &fakeLink{most: 2, from: make([]byte, size)}
		l.buf = l.from
		p := player{link: l, size: size, iters: iters, depth: depth}
		if check {
			l.buf = make([]byte, size)
			p.check = newChecker(isClient, testPage, l.from, l.buf)
		}
		return l, p
	}
	m.clink, m.client = newSide(true)
	m.slink, m.server = newSide(false)
	m.clink.peer, m.slink.peer = m.slink, m.clink
	m.clink.runPeer = func() {
		if !m.serverHasStopped {
			m.resume <- struct{}{}
			<-m.yield
		}
	}
	m.slink.runPeer = func() {
		m.yield <- struct{}{}
		<-m.resume
	}
	return m
}

// play plays the match and returns both sides' errors.
func (m *match) play() (clientErr, serverErr error) {
	if err := m.server.prepare(); err != nil {
		return nil, err
	}
	if err := m.client.prepare(); err != nil {
		return err, nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-m.resume
		m.serverErr = m.server.play(false)
		m.serverHasStopped = true
		m.yield <- struct{}{}
	}()
	clientErr = m.client.play(true)
	for !m.serverHasStopped {
		if clientErr != nil {
			m.slink.failure = errors.New("the client has gone")
		}
		m.resume <- struct{}{}
		<-m.yield
	}
	<-done
	return clientErr, m.serverErr
}

func TestPlay(t *testing.T) {
	for _, iters := range []int{1, 2, 3, 1000} {
		for _, depth := range []int{1, 2, 3, 500} {
			for _, most := range []int{1, 2} {
				for _, recvFirst := range []bool{false, true} {
					for _, check := range []bool{false, true} {
						m := newMatch(5000, iters, depth, check)
						m.clink.most, m.slink.most = most, most
						m.clink.recvFirst, m.slink.recvFirst = recvFirst, recvFirst
						var count atomic.Int64
						m.client.count = &count
						cerr, serr := m.play()
						name := fmt.Sprintf("iters %d depth %d most %d recvFirst %v check %v", iters, depth, most, recvFirst, check)
						if cerr != nil || serr != nil {
							t.Fatalf("%s: client %v, server %v", name, cerr, serr)
						}
						for _, p := range []*player{&m.client, &m.server} {
							if l := p.link.(*fakeLink); p.sent != iters || p.received != iters || l.sends != iters || l.maxPosted != depth {
								t.Fatalf("%s: %d sends, %d ended, %d messages came, %d receives", name, l.sends, p.sent, p.received, l.maxPosted)
							}
						}
						if count.Load() != int64(iters) {
							t.Fatalf("%s: counted %d", name, count.Load())
						}
					}
				}
			}
		}
	}
}

func TestPlayFails(t *testing.T) {
	refused := errors.New("refused")
	for name, test := range map[string]struct {
		spoil          func(*match)
		client, server string
	}{
		"send fails": {func(m *match) { m.clink.status = cq.StatusRetryExceeded }, "after 0 messages: send request 2", ""},
		"longer":     {func(m *match) { m.slink.lie = 7 }, "", "message 1 has 107 bytes, and this side has -s 100"},
		"shorter":    {func(m *match) { m.clink.lie = -1 }, "message 1 has 99 bytes", ""},
		"no send":    {func(m *match) { m.clink.sendRefused = refused }, "refused", ""},
		"no answer":  {func(m *match) { m.slink.sendRefused = refused }, "", "refused"},
		"no wait":    {func(m *match) { m.slink.failure = refused }, "", "refused"},
		"wrong bytes": {func(m *match) {
			m.slink.buf = make([]byte, 100) // the message goes astray
		}, "", "payload of message 1"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMatch(100, 10, 5, true)
			test.spoil(m)
			cerr, serr := m.play()
			for side, e := range map[string]struct {
				err  error
				want string
			}{"client": {cerr, test.client}, "server": {serr, test.server}} {
				if e.want != "" && (e.err == nil || !strings.Contains(e.err.Error(), e.want)) {
					t.Errorf("%s: error %v, want one with %q", side, e.err, e.want)
				}
			}
		})
	}
}

func TestPlayDoesNotAllocate(t *testing.T) {
	// A player on a link that echoes at once.
	l := &echoLink{size: 4096}
	p := player{link: l, size: 4096, iters: 1 << 30, depth: 100}
	if err := p.prepare(); err != nil {
		t.Fatal(err)
	}
	p.pending = sendPending | recvPending
	if n := testing.AllocsPerRun(1000, func() {
		n, _ := p.link.wait(p.wcs[:])
		for i := range p.wcs[:n] {
			if err := p.ended(&p.wcs[i]); err != nil {
				t.Fatal(err)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations a message", n)
	}
}

// echoLink completes a send and a receive for each wait.
type echoLink struct{ size int }

func (l *echoLink) recv(int) error { return nil }
func (l *echoLink) send() error    { return nil }
func (l *echoLink) wait(wcs []uverbs.WC) (int, error) {
	wcs[0] = uverbs.WC{Side: uverbs.SendSide}
	wcs[1] = uverbs.WC{Side: uverbs.RecvSide, Bytes: uint32(l.size)}
	return 2, nil
}
