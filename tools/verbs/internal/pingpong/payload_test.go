package pingpong

import (
	"bytes"
	"strings"
	"testing"
)

const testPage = 4096

var payloadSizes = []int{0, 1, 2, 250, 251, 252, 4095, 4096, 4097, 65536, 70001}

// newBoth makes the checkers of both sides.
func newBoth(size int) (client, server *checker) {
	side := func(isClient bool) *checker {
		return newChecker(isClient, testPage, bytes.Repeat([]byte{plain}, size), bytes.Repeat([]byte{plain}, size))
	}
	return side(true), side(false)
}

// Messages between two checkers are right, and no two in a row are the same.
func TestCheckBothSides(t *testing.T) {
	for _, size := range payloadSizes {
		client, server := newBoth(size)
		var last []byte
		for i := range 600 {
			if i > 0 {
				client.next()
			}
			if size > 1 && bytes.Equal(client.send, last) {
				t.Fatalf("%d bytes: messages %d and %d are the same", size, i-1, i)
			}
			last = bytes.Clone(client.send)
			copy(server.recv, client.send)
			if err := server.received(); err != nil {
				t.Fatalf("%d bytes: server: %v", size, err)
			}
			server.next()
			copy(client.recv, server.send)
			if err := client.received(); err != nil {
				t.Fatalf("%d bytes: client: %v", size, err)
			}
		}
	}
}

// fakeC is the buffer of ibv_rc_pingpong -c: filled, marked by the client at the
// beginning, looked at by the server at the end.
type fakeC []byte

func newFakeC(size int, client bool) fakeC {
	b := fakeC(bytes.Repeat([]byte{plain}, size))
	if client {
		for i := 0; i < size; i += testPage {
			b[i] = 0
		}
	}
	return b
}

func (b fakeC) valid() bool {
	for i := 0; i < len(b); i += testPage {
		if b[i] != 0 {
			return false
		}
	}
	return true
}

func TestCheckAgainstC(t *testing.T) {
	for _, size := range payloadSizes {
		client, server := newBoth(size)
		c := newFakeC(size, false)
		for i := range 300 {
			if i > 0 {
				client.next()
			}
			copy(c, client.send)
			if !c.valid() {
				t.Fatalf("%d bytes: message %d is invalid for ibv_rc_pingpong", size, i)
			}
			copy(client.recv, c)
			if err := client.received(); err != nil {
				t.Fatalf("%d bytes: client: %v", size, err)
			}
		}
		c = newFakeC(size, true)
		for range 300 {
			copy(server.recv, c)
			if err := server.received(); err != nil {
				t.Fatalf("%d bytes: server: %v", size, err)
			}
			server.next()
			copy(c, server.send)
		}
	}
}

// Every wrong byte shows, on both sides, as does a message that did not arrive.
func TestCheckFinds(t *testing.T) {
	for _, size := range payloadSizes[1:] {
		step := max(1, size/97)
		for at := 0; at < size; at += step {
			for _, bit := range []byte{1, 0x80} {
				client, server := newBoth(size)
				copy(server.recv, client.send)
				server.recv[at] ^= bit
				if err := server.received(); err == nil {
					t.Fatalf("%d bytes: the server missed bit %#x of byte %d", size, bit, at)
				}
				copy(client.recv, client.send)
				client.recv[at] ^= bit
				err := client.received()
				if err == nil {
					t.Fatalf("%d bytes: the client missed bit %#x of byte %d", size, bit, at)
				}
			}
		}
		client, server := newBoth(size)
		if server.received() == nil || client.received() == nil {
			t.Fatalf("%d bytes: a message that never came was right", size)
		}
		if size == 1 {
			continue // only the mark, which is always the same
		}
		client, server = newBoth(size)
		old := bytes.Clone(client.send)
		copy(server.recv, old)
		if err := server.received(); err != nil {
			t.Fatal(err)
		}
		server.next()
		copy(client.recv, server.send)
		if err := client.received(); err != nil {
			t.Fatal(err)
		}
		client.next()
		copy(server.recv, old)
		copy(client.recv, old)
		if server.received() == nil || client.received() == nil {
			t.Fatalf("%d bytes: the message before was taken for the next one", size)
		}
	}
}

func TestCheckSaysWhere(t *testing.T) {
	client, server := newBoth(3 * testPage)
	copy(server.recv, client.send)
	server.recv[testPage+5] ^= 0xff
	err := server.received()
	if err == nil || !strings.Contains(err.Error(), "message 1,") || !strings.Contains(err.Error(), "byte 4101, on page 1,") {
		t.Errorf("error %v", err)
	}
	_, server = newBoth(3 * testPage)
	copy(server.recv, newFakeC(3*testPage, false))
	if err := server.received(); err == nil || !strings.Contains(err.Error(), "start the client with -c") {
		t.Errorf("a client without -c: %v", err)
	}
}
