package uverbs

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Peer is what a Handshake learned of the other side.
type Peer struct {
	Endpoint Endpoint
	// Regions are the memory regions that the peer offered, in its order.
	Regions []Remote
}

// Handshake connects the queue pair to the one whose owner calls Handshake at
// the other end of conn. It swaps endpoints and offers the given regions,
// connects with the lesser MTU and read depth of both sides, and returns when
// both are ready to receive and send.
//
// Receives that the peer's first messages need stand before the call. The peer's
// Handshake may return first: once a message of the peer has come, a poller may
// answer it, though this call has not returned.
//
// conn carries nothing else during the call, and is the caller's again
// afterwards. Keep it: a queue pair does not notice that its peer is gone until
// it sends, while a read from conn ends. When ctx ends first, Handshake returns
// its cause. After an error conn is of no more use: it is in an undefined state,
// and its deadline has passed.
func (qp *QP) Handshake(ctx context.Context, conn net.Conn, regions ...Remote) (*Peer, error) {
	return qp.HandshakeWith(ctx, conn, nil, regions...)
}

// HandshakeWith is Handshake with choices of one's own. Of MTU and ReadDepth the
// lesser of what both sides chose counts.
func (qp *QP) HandshakeWith(ctx context.Context, conn net.Conn, opts *ConnectOptions, regions ...Remote) (*Peer, error) {
	var o ConnectOptions
	if opts != nil {
		o = *opts
	}
	peer, err := qp.handshake(ctx, conn, o, regions)
	if err != nil {
		switch {
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case qp.dev.lost.Load():
			err = ErrDeviceGone
		}
		return nil, qp.denied("handshake of", err)
	}
	return peer, nil
}

// The greeting is a fixed header and a list of regions, big-endian.
const (
	greetingMagic  = "goverbs\x01"
	greetingSize   = len(greetingMagic) + 4 + 4 + 16 + 2 + 2 + 2 + 2
	regionSize     = 8 + 8 + 4
	maxRegions     = 4096
	readyToReceive = 'R'
)

func (qp *QP) handshake(ctx context.Context, conn net.Conn, o ConnectOptions, regions []Remote) (peer *Peer, err error) {
	var writers sync.WaitGroup
	if len(regions) > maxRegions {
		return nil, invalid("%d regions: at most %d", len(regions), maxRegions)
	}
	// The peer would go by what does not hold here.
	if err := o.check(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// A deadline in the past ends reads and writes that are under way.
	past := func() error { return conn.SetDeadline(time.Unix(1, 0)) }
	stop := context.AfterFunc(ctx, func() { past() })
	// So does the end of the device, to which letGoRings comes.
	qp.setWhenLost(past)
	if qp.dev.lost.Load() {
		past()
	}
	defer func() {
		qp.setWhenLost(nil)
		if !stop() && err == nil {
			err = context.Cause(ctx) // it is past, or about to be
		}
		if err != nil && past() == nil {
			writers.Wait()
		}
	}()

	own := qp.Endpoint()
	if o.MTU != 0 {
		own.MTU = o.MTU
	}
	if o.ReadDepth != 0 {
		own.ReadDepth = min(own.ReadDepth, o.ReadDepth)
	}
	// Both sides write first: a buffered connection takes it; one that does
	// not, such as net.Pipe, needs the writer beside the reader.
	wrote := make(chan error, 1)
	writers.Go(func() {
		_, err := conn.Write(encodeGreeting(own, regions))
		wrote <- err
	})
	if peer, err = readGreeting(conn); err != nil {
		return nil, fmt.Errorf("read the peer's greeting: %w", err)
	}
	if err := <-wrote; err != nil {
		return nil, fmt.Errorf("write the greeting: %w", err)
	}
	if o.MTU != 0 && peer.Endpoint.MTU != 0 {
		o.MTU = min(o.MTU, peer.Endpoint.MTU)
	}
	if err := qp.Connect(ctx, peer.Endpoint, &o); err != nil {
		return nil, err
	}
	writers.Go(func() {
		_, err := conn.Write([]byte{readyToReceive})
		wrote <- err
	})
	var ready [1]byte
	if _, err := io.ReadFull(conn, ready[:]); err != nil {
		return nil, fmt.Errorf("wait until the peer is ready: %w", err)
	}
	if ready[0] != readyToReceive {
		return nil, fmt.Errorf("wait until the peer is ready: got byte %#x", ready[0])
	}
	if err := <-wrote; err != nil {
		return nil, fmt.Errorf("say that this side is ready: %w", err)
	}
	return peer, nil
}

func encodeGreeting(e Endpoint, regions []Remote) []byte {
	b := make([]byte, 0, greetingSize+regionSize*len(regions))
	be := binary.BigEndian
	b = append(b, greetingMagic...)
	b = be.AppendUint32(b, e.QPN)
	b = be.AppendUint32(b, e.PSN)
	b = append(b, e.GID[:]...)
	b = be.AppendUint16(b, e.LID)
	b = be.AppendUint16(b, uint16(e.MTU))
	b = be.AppendUint16(b, uint16(e.ReadDepth))
	b = be.AppendUint16(b, uint16(len(regions)))
	for _, r := range regions {
		b = be.AppendUint64(b, r.Addr)
		b = be.AppendUint64(b, r.Length)
		b = be.AppendUint32(b, r.RKey)
	}
	return b
}

// readGreeting reads what the peer says of itself, which may be anything.
func readGreeting(r io.Reader) (*Peer, error) {
	b := make([]byte, greetingSize)
	n, err := io.ReadFull(r, b)
	// A stranger may say less than a greeting, and is told from a peer that
	// went away all the same.
	if n >= len(greetingMagic) && string(b[:len(greetingMagic)]) != greetingMagic {
		return nil, fmt.Errorf("%q is not the beginning of a handshake of this version: is it Handshake that the peer calls?", b[:len(greetingMagic)])
	}
	if err != nil {
		return nil, err
	}
	be := binary.BigEndian
	b = b[len(greetingMagic):]
	p := &Peer{Endpoint: Endpoint{QPN: be.Uint32(b), PSN: be.Uint32(b[4:]), GID: GID(b[8:24]),
		LID: be.Uint16(b[24:]), MTU: int(be.Uint16(b[26:])), ReadDepth: int(be.Uint16(b[28:]))}}
	n = int(be.Uint16(b[30:]))
	if _, ok := mtuCode(p.Endpoint.MTU); !ok && p.Endpoint.MTU != 0 {
		return nil, fmt.Errorf("the peer's MTU is %d: allowed are 256, 512, 1024, 2048 and 4096", p.Endpoint.MTU)
	}
	if p.Endpoint.QPN > maxPSN || p.Endpoint.PSN > maxPSN {
		return nil, fmt.Errorf("the peer's QPN %#x or PSN %#x has more than 24 bits", p.Endpoint.QPN, p.Endpoint.PSN)
	}
	if n > maxRegions {
		return nil, fmt.Errorf("the peer offers %d regions: at most %d", n, maxRegions)
	}
	b = make([]byte, regionSize)
	for range n {
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, err
		}
		p.Regions = append(p.Regions, Remote{Addr: be.Uint64(b), Length: be.Uint64(b[8:]), RKey: be.Uint32(b[16:])})
	}
	return p, nil
}
