package pingpong

import (
	"bytes"
	"fmt"
)

// checker writes and checks what messages carry, so that a message that is lost,
// stale, cut or put in a wrong place shows.
//
// The client's messages differ from one to the next, and the server sends back
// what it got. What both programs agree on is that the first byte of each page
// is 0: that is all that ibv_rc_pingpong -c looks at, as the server, after the
// last message. As the client it sends the same bytes each time. Messages are
// received into memory of their own, which is overwritten in between, so that
// every byte of every message counts.
type checker struct {
	client     bool
	page       int
	send, recv []byte
	stream     []byte
	ours       []byte // the message to come if the other side is verbs pingpong
	plain      []byte // the same if it is ibv_rc_pingpong, as the client
	n          int    // messages that came
}

const (
	// plain fills the messages of ibv_rc_pingpong.
	plain = 0x7b
	// poison fills the memory of a receive that has not happened. No message
	// has it.
	poison = 0xff
	// period is how often the bytes of a message recur: a prime, so that
	// bytes of one page are wrong on another, and less than poison, so that
	// none is the same.
	period = 251
)

func newChecker(client bool, page int, send, recv []byte) *checker {
	k := &checker{client: client, page: page, send: send, recv: recv, stream: make([]byte, len(send)+period)}
	for i := range k.stream {
		k.stream[i] = byte(i % period)
	}
	if !client {
		k.ours, k.plain = make([]byte, len(recv)), make([]byte, len(recv))
		fill(k.plain, plain)
		k.stripe(k.plain)
	}
	fill(recv, poison)
	if client {
		k.next()
	}
	return k
}

func fill(b []byte, v byte) {
	for i := range b {
		b[i] = v
	}
}

// stripe marks the beginning of each page.
func (k *checker) stripe(b []byte) {
	for i := 0; i < len(b); i += k.page {
		b[i] = 0
	}
}

// message writes message n as verbs pingpong sends it.
func (k *checker) message(b []byte, n int) {
	copy(b, k.stream[n%period:])
	k.stripe(b)
}

// next writes the message to send. The previous one has been sent, and what it
// was answered with has been received.
func (k *checker) next() {
	if k.client {
		k.message(k.send, k.n)
		return
	}
	copy(k.send, k.recv)
	fill(k.recv, poison)
}

// received checks the message that has come.
func (k *checker) received() error {
	n := k.n
	k.n++
	if k.client {
		if !bytes.Equal(k.recv, k.send) {
			return k.differs(n, firstDifference(k.recv, k.send), k.send)
		}
		fill(k.recv, poison)
		return nil
	}
	if k.message(k.ours, n); bytes.Equal(k.recv, k.ours) || bytes.Equal(k.recv, k.plain) {
		return nil
	}
	// Whichever goes along with it longer is what was sent.
	at, want := firstDifference(k.recv, k.ours), k.ours
	if i := firstDifference(k.recv, k.plain); i > at {
		at, want = i, k.plain
	}
	return k.differs(n, at, want)
}

func firstDifference(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return len(a)
}

// differs says where message n is wrong.
func (k *checker) differs(n, at int, want []byte) error {
	err := fmt.Errorf("payload of message %d, of %d bytes: byte %d, on page %d, is %#02x and should be %#02x", n+1, len(want), at, at/k.page, k.recv[at], want[at])
	if !k.client && n == 0 && k.recv[at] == plain && at%k.page == 0 {
		err = fmt.Errorf("%w: start the client with -c, too", err)
	}
	return err
}
