package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/mlx5/model"
)

// frames takes a file of packets with IPv6 apart: of each the operation, the PSN, the queue pair,
// the headers behind the base one, and how long it was.
func frames(t *testing.T, file string) (all []string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	le, be := binary.LittleEndian, binary.BigEndian
	if len(b) < 24 || le.Uint32(b) != 0xa1b23c4d || le.Uint32(b[20:]) != 1 {
		t.Fatalf("file header % x", b[:min(24, len(b))])
	}
	for b = b[24:]; len(b) > 0; {
		at, n, whole := time.Unix(int64(le.Uint32(b)), int64(le.Uint32(b[4:]))), le.Uint32(b[8:]), le.Uint32(b[12:])
		if want := time.Unix(1000, 5); !at.Equal(want) {
			t.Fatalf("a packet of %v, want %v", at, want)
		}
		f := b[16:][:n]
		b = b[16+n:]
		ip := f[14:]
		udp := ip[40:]
		bth := udp[8:]
		if be.Uint16(f[12:]) != 0x86dd || ip[6] != 17 || be.Uint16(udp[2:]) != 4791 || be.Uint16(bth[2:]) != 0xffff {
			t.Fatalf("frame % x", f)
		}
		if got := be.Uint16(udp[4:]); uint32(got) != whole-54 || be.Uint16(ip[4:]) != got {
			t.Fatalf("%d bytes of UDP, %d of IP in a frame of %d", got, be.Uint16(ip[4:]), whole)
		}
		way := fmt.Sprintf("%d>%d", ip[23], ip[39])
		if f[11] != ip[23] || f[5] != ip[39] {
			t.Fatalf("addresses of Ethernet are others than of IP: % x", f)
		}
		all = append(all, fmt.Sprintf("%s op %d flags %#x psn %#x qp %#x [%x] %d", way, bth[0], bth[1], be.Uint32(bth[8:]), be.Uint32(bth[4:]), bth[12:], whole))
	}
	return all
}

func TestPcapFrames(t *testing.T) {
	file := filepath.Join(t.TempDir(), "packets.pcap")
	c, err := newCapture(file, time.Unix(1000, 0))
	if err != nil {
		t.Fatal(err)
	}
	addr := func(n byte) (g model.GID) {
		g.Addr[0], g.Addr[15] = 0xfe, n
		return g
	}
	event := func(typ uint8, psn, packets uint32, e model.RequestEvent) model.RequestEvent {
		e.Origin = model.Origin{Device: "mlx5_0", Time: 5}
		e.QPN, e.PeerQPN = 0x48, 0x59
		e.Route = model.Route{
			Type: typ, Packets: packets, PSN: psn, MTU: 1024, FromGID: addr(1), ToGID: addr(2), FromMAC: [6]byte{5: 1}, ToMAC: [6]byte{5: 2},
			PKey: 0xffff, QKey: 0x1111,
		}
		return e
	}
	const headers = 14 + 40 + 8 + 12 + 4 // of a frame, with the ICRC
	for _, s := range []struct {
		e    model.RequestEvent
		want []string
	}{
		{event(typeRC, 0xffffff, 3, model.RequestEvent{Opcode: opSendImm, Length: 2051, Immediate: 0xabcd, Flags: 0x02}), []string{
			fmt.Sprintf("1>2 op 0 flags 0x0 psn 0xffffff qp 0x59 [] %d", headers+1024),
			fmt.Sprintf("1>2 op 1 flags 0x0 psn 0x0 qp 0x59 [] %d", headers+1024),
			fmt.Sprintf("1>2 op 3 flags 0x90 psn 0x80000001 qp 0x59 [0000abcd] %d", headers+4+4), // 3 bytes and 1 to fill up
			fmt.Sprintf("2>1 op 17 flags 0x0 psn 0x1 qp 0x48 [1f000001] %d", headers+4)}},
		{event(typeRC, 2, 2, model.RequestEvent{Opcode: opRead, Length: 1028, Remote: 0x1000, RKey: 0x77}), []string{
			fmt.Sprintf("1>2 op 12 flags 0x0 psn 0x80000002 qp 0x59 [00000000000010000000007700000404] %d", headers+16),
			fmt.Sprintf("2>1 op 13 flags 0x0 psn 0x2 qp 0x48 [1f000002] %d", headers+4+1024),
			fmt.Sprintf("2>1 op 15 flags 0x0 psn 0x3 qp 0x48 [1f000002] %d", headers+4+4)}},
		{event(typeRC, 4, 1, model.RequestEvent{Opcode: opCompSwap, Length: 8, Remote: 8, RKey: 1, SwapAdd: 2, Compare: 3}), []string{
			fmt.Sprintf("1>2 op 19 flags 0x0 psn 0x80000004 qp 0x59 [00000000000000080000000100000000000000020000000000000003] %d", headers+28),
			fmt.Sprintf("2>1 op 18 flags 0x0 psn 0x4 qp 0x48 [1f000003] %d", headers+4+8)}},
		{event(typeRC, 5, 1, model.RequestEvent{Opcode: opSendInv, Immediate: 0x99, Outcome: model.OutcomeNotReady, RNRTimer: 12}), []string{
			fmt.Sprintf("1>2 op 23 flags 0x0 psn 0x80000005 qp 0x59 [00000099] %d", headers+4),
			fmt.Sprintf("2>1 op 17 flags 0x0 psn 0x5 qp 0x48 [2c000003] %d", headers+4)}},
		{event(typeRC, 5, 1, model.RequestEvent{Opcode: opSend, Outcome: model.OutcomeLost}), []string{
			fmt.Sprintf("1>2 op 4 flags 0x0 psn 0x80000005 qp 0x59 [] %d", headers)}},
		{event(typeRC, 5, 2, model.RequestEvent{Opcode: opWrite, Length: 1025, Outcome: model.OutcomeFailed, Syndrome: 0x13}), []string{
			fmt.Sprintf("1>2 op 6 flags 0x0 psn 0x5 qp 0x59 [00000000000000000000000000000401] %d", headers+16+1024),
			fmt.Sprintf("1>2 op 8 flags 0x30 psn 0x80000006 qp 0x59 [] %d", headers+4),
			fmt.Sprintf("2>1 op 17 flags 0x0 psn 0x5 qp 0x48 [62000003] %d", headers+4)}},
		{event(typeUC, 6, 1, model.RequestEvent{Opcode: opWriteImm, Immediate: 1}), []string{
			fmt.Sprintf("1>2 op 43 flags 0x0 psn 0x6 qp 0x59 [0000000000000000000000000000000000000001] %d", headers+20)}},
		{event(typeUD, 7, 1, model.RequestEvent{Opcode: opSend, Length: 64}), []string{
			fmt.Sprintf("1>2 op 100 flags 0x0 psn 0x7 qp 0x59 [0000111100000048] %d", headers+8+64)}},
		{event(typeRC, 8, 0, model.RequestEvent{Opcode: opSend, Outcome: model.OutcomeFlushed}), nil},
	} {
		c.event(s.e)
		c.flush()
		got := frames(t, file)
		if len(got) < len(s.want) || !slices.Equal(got[len(got)-len(s.want):], s.want) {
			t.Errorf("%v:\n%s\nwant\n%s", s.e, strings.Join(got, "\n"), strings.Join(s.want, "\n"))
		}
	}
	if got := len(frames(t, file)); got != 17 {
		t.Errorf("%d frames, want 17", got)
	}
	// A queue pair that begins anew counts its messages anew.
	c.event(model.StateEvent{Origin: model.Origin{Device: "mlx5_0", Time: 5}, QPN: 0x48})
	c.event(event(typeRC, 0, 1, model.RequestEvent{Opcode: opSend}))
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	if all := frames(t, file); !strings.Contains(all[len(all)-1], "[1f000001]") {
		t.Errorf("the last is %s", all[len(all)-1])
	}
}

// A file that cannot be made, and one that is full.
func TestPcapErrors(t *testing.T) {
	if _, err := newCapture(filepath.Join(t.TempDir(), "none", "packets"), time.Now()); err == nil {
		t.Error("a file in a folder that is not there")
	}
	c, err := newCapture(filepath.Join(t.TempDir(), "packets"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c.file.Close()
	if err := c.close(); err == nil || !strings.Contains(err.Error(), "-pcap") {
		t.Errorf("closed too early: %v", err)
	}
}
