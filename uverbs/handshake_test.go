package uverbs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestGreeting(t *testing.T) {
	e := Endpoint{QPN: 0x123456, PSN: 0xfedcba, GID: GID{1, 2, 15: 9}, LID: 77, MTU: 2048, ReadDepth: 16}
	regions := []Remote{{Addr: 1 << 60, Length: 1 << 40, RKey: 0xdeadbeef}, {}}
	p, err := readGreeting(bytes.NewReader(encodeGreeting(e, regions)))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(&Peer{Endpoint: e, Regions: regions}, p); d != "" {
		t.Error(d)
	}
}

// Whatever the peer sends, reading it ends with an error or a sound peer.
func FuzzGreeting(f *testing.F) {
	f.Add(encodeGreeting(Endpoint{QPN: 17, MTU: 1024}, nil))
	f.Add(encodeGreeting(Endpoint{QPN: 17, PSN: maxPSN, MTU: 4096, ReadDepth: 1}, []Remote{{Addr: 1, Length: 2, RKey: 3}}))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n                                              "))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := readGreeting(bytes.NewReader(b))
		if err != nil {
			return
		}
		if p.Endpoint.QPN > maxPSN || p.Endpoint.PSN > maxPSN || len(p.Regions) > maxRegions {
			t.Fatalf("accepted %+v", p)
		}
		if again := encodeGreeting(p.Endpoint, p.Regions); !bytes.HasPrefix(b, again) {
			t.Fatalf("%x came back as %x", b, again)
		}
	})
}

// A peer that stops, lies or goes away ends the handshake with an error that
// says where it stood.
func TestHandshakeWithBadPeers(t *testing.T) {
	good := encodeGreeting(Endpoint{QPN: 99, GID: GIDFromAddr(netip.MustParseAddr("10.0.0.1")), MTU: 1024, ReadDepth: 1}, nil)
	with := func(at int, b ...byte) []byte {
		g := bytes.Clone(good)
		copy(g[at:], b)
		return g
	}
	for name, test := range map[string]struct {
		say  []byte
		want string
	}{
		"nothing":          {nil, "read the peer's greeting: EOF"},
		"half a greeting":  {good[:20], "unexpected EOF"},
		"a short stranger": {[]byte("GET / HTTP/1.0\n"), "is not the beginning of a handshake"},
		"another protocol": {[]byte(strings.Repeat("SSH-2.0-OpenSSH\n", 4)), "is not the beginning of a handshake"},
		"QPN too big":      {with(8, 0xff), "24 bits"},
		"MTU of 1500":      {with(34, 1500>>8, 1500&0xff), "MTU is 1500"},
		"many regions":     {with(38, 0xff, 0xff), "65535 regions"},
		"regions missing":  {with(38, 0, 3), "EOF"},
		"no address":       {with(16, make([]byte, 16)...), "neither GID nor LID"},
		"never ready":      {good, "wait until the peer is ready"},
		"ready with junk":  {append(bytes.Clone(good), 'X'), "got byte 0x58"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, false)
			qp, err := r.pd.NewQP(RC, &QPOptions{CQ: r.sendQ, SendDepth: 2, RecvDepth: 2})
			if err != nil {
				t.Fatal(err)
			}
			ours, theirs := net.Pipe()
			go func() {
				defer theirs.Close()
				if _, err := io.ReadFull(theirs, make([]byte, greetingSize)); err != nil {
					t.Error(err)
				}
				theirs.Write(test.say)
			}()
			_, err = qp.Handshake(t.Context(), ours)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
			ours.Close()
		})
	}
}

func TestHandshakeCancelled(t *testing.T) {
	r := newRig(t, false)
	qp, err := r.pd.NewQP(RC, &QPOptions{CQ: r.sendQ, SendDepth: 2, RecvDepth: 2})
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	why := errors.New("changed my mind")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(10*time.Millisecond, func() { cancel(why) })
	for _, when := range []string{"under way", "before"} {
		if _, err := qp.Handshake(ctx, ours); !errors.Is(err, why) || strings.Contains(err.Error(), "\n") {
			t.Errorf("cancelled %s: %v, want one line with %v", when, err, why)
		}
	}
	if err := qp.Connect(ctx, Endpoint{GID: qp.Source().GID}, nil); !errors.Is(err, why) {
		t.Errorf("connect: %v, want %v", err, why)
	}
	if _, err := qp.Handshake(t.Context(), ours, make([]Remote, maxRegions+1)...); !errors.Is(err, ErrInvalid) {
		t.Errorf("too many regions: %v", err)
	}
}

// Both sides settle on what both can.
func TestConnectAgrees(t *testing.T) {
	r := newRig(t, false)
	for name, test := range map[string]struct {
		peer  Endpoint
		opts  ConnectOptions
		mtu   int
		reads int
	}{
		"same":          {Endpoint{MTU: 1024, ReadDepth: 128}, ConnectOptions{}, 1024, 16},
		"smaller peer":  {Endpoint{MTU: 512, ReadDepth: 4}, ConnectOptions{}, 512, 4},
		"larger peer":   {Endpoint{MTU: 4096, ReadDepth: 250}, ConnectOptions{}, 1024, 16},
		"silent peer":   {Endpoint{}, ConnectOptions{}, 1024, 16},
		"chosen":        {Endpoint{MTU: 512, ReadDepth: 8}, ConnectOptions{MTU: 256, ReadDepth: 2}, 256, 2},
		"chosen beyond": {Endpoint{MTU: 512, ReadDepth: 8}, ConnectOptions{ReadDepth: 100}, 512, 8},
	} {
		o := test.opts
		o.fill(r.a, test.peer)
		if o.MTU != test.mtu || o.ReadDepth != test.reads {
			t.Errorf("%s: MTU %d and %d reads, want %d and %d", name, o.MTU, o.ReadDepth, test.mtu, test.reads)
		}
		if o.Retries != 6 || o.RNRRetries != 6 || o.AckTimeout != ackTimeoutUnit<<14 {
			t.Errorf("%s: the defaults do not end: %+v", name, o)
		}
	}
	o := ConnectOptions{Retries: NoRetry, RNRRetries: RetryForever}
	o.fill(r.a, Endpoint{})
	if o.Retries != 0 || o.RNRRetries != 7 {
		t.Errorf("%+v", o)
	}
}

// HandshakeWith settles on the lesser of what both sides chose, and its other
// choices reach the queue pair.
func TestHandshakeWithChoices(t *testing.T) {
	r := newRig(t, false)
	makeQP := func() *QP {
		qp, err := r.pd.NewQP(RC, &QPOptions{CQ: r.sendQ, SendDepth: 2, RecvDepth: 2})
		if err != nil {
			t.Fatal(err)
		}
		return qp
	}
	a, b := makeQP(), makeQP()
	ours, theirs := net.Pipe()
	peerErr := make(chan error, 1)
	go func() {
		_, err := b.HandshakeWith(t.Context(), theirs, &ConnectOptions{MTU: 512, ReadDepth: 8})
		peerErr <- err
	}()
	if _, err := a.HandshakeWith(t.Context(), ours, &ConnectOptions{MTU: 1024, ReadDepth: 3, Retries: 2, RNRRetries: RetryForever}); err != nil {
		t.Fatal(err)
	}
	if err := <-peerErr; err != nil {
		t.Fatal(err)
	}
	for qp, retries := range map[*QP]int{a: 2, b: defaultRetries} {
		i, err := qp.Query()
		if err != nil {
			t.Fatal(err)
		}
		if i.PathMTU != 512 || i.ReadDepth != 3 || i.Retries != retries {
			t.Errorf("MTU %d, read depth %d, %d retries; want 512, 3, %d", i.PathMTU, i.ReadDepth, i.Retries, retries)
		}
	}
}

// Choices that the greeting cannot say truly are refused before the peer hears of
// them.
func TestHandshakeWithBadChoices(t *testing.T) {
	r := newRig(t, false)
	qp, err := r.pd.NewQP(RC, &QPOptions{CQ: r.sendQ, SendDepth: 2, RecvDepth: 2})
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := net.Pipe()
	theirs.Close() // it is not asked
	defer ours.Close()
	for want, o := range map[string]ConnectOptions{
		"MTU 1048576": {MTU: 1 << 20}, // 0 in 16 bits
		"MTU 1500":    {MTU: 1500},
		"MTU -1":      {MTU: -1},
		"depth -1":    {ReadDepth: -1}, // many, without a sign
	} {
		_, err := qp.HandshakeWith(t.Context(), ours, &o)
		says(t, want, err, ErrInvalid, want)
		says(t, want, qp.Connect(t.Context(), r.a.Endpoint(), &o), ErrInvalid, want)
	}
	if s := qp.State(); s != StateInit {
		t.Errorf("the queue pair is in %v", s)
	}
}
