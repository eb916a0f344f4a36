package selftest

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/uverbs"
)

// secret is what data consists of in these tests. No four bytes of it are anything else.
var secret = []byte{0xd7, 0x4d, 0xa9, 0x6b, 0xe5, 0x9c, 0x3a, 0xf1}

// leaks says what of the secret is in a file, in whatever form: as text, as hexadecimal
// numbers with and without spaces and line breaks, in base64, in either order of bytes.
// Four bytes are enough.
func leaks(file []byte) (found []string) {
	hexadecimal := hexDigits(file)
	for i := range secret {
		piece := make([]byte, 4)
		for k := range piece {
			piece[k] = secret[(i+k)%len(secret)]
		}
		back := []byte{piece[3], piece[2], piece[1], piece[0]}
		for _, p := range [][]byte{piece, back} {
			if bytes.Contains(file, p) {
				found = append(found, fmt.Sprintf("% x as it is", p))
			}
			if bytes.Contains(hexadecimal, []byte(hex.EncodeToString(p))) {
				found = append(found, fmt.Sprintf("% x in hexadecimal", p))
			}
			for _, number := range []uint32{binary.BigEndian.Uint32(p), binary.LittleEndian.Uint32(p)} {
				if bytes.Contains(file, fmt.Append(nil, number)) {
					found = append(found, fmt.Sprintf("% x as the number %d", p, number))
				}
			}
		}
		for shift := range 3 {
			long := append(bytes.Repeat([]byte{0}, shift), append(append([]byte{}, secret[i:]...), secret[:i]...)...)
			if text := base64.StdEncoding.EncodeToString(long); bytes.Contains(file, []byte(text[4:10])) {
				found = append(found, "in base64: "+text)
			}
		}
	}
	return found
}

// hexDigits are the hexadecimal digits of a file one after another, without what stands
// between them.
func hexDigits(file []byte) []byte {
	var all []byte
	for _, c := range bytes.ToLower(file) {
		switch {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'f':
			all = append(all, c)
		case strings.IndexByte(" \n\t\",:", c) < 0:
			all = append(all, '|')
		}
	}
	return all
}

// recorded runs tests with data that is all secret and returns the file, and what in it
// identifies the machine.
func recorded(t *testing.T, bare bool) (file []byte, identity map[string][]byte) {
	t.Helper()
	f := newFabric(t)
	c := onModel(t, f)
	c.Record, c.marker, c.bare, c.Rounds = true, secret, bare, 200
	identity = map[string][]byte{}
	var mu sync.Mutex
	c.tamper = func(_ string, e *end, w []uverbs.WC) []uverbs.WC {
		mu.Lock()
		defer mu.Unlock()
		gid := e.qp.Source().GID
		identity["GID"] = gid[:]
		identity["address"] = binary.BigEndian.AppendUint64(nil, e.mr.Remote().Addr)[1:6] // the page
		identity["address in little-endian"] = binary.LittleEndian.AppendUint64(nil, e.mr.Remote().Addr)[2:7]
		return w
	}
	r, err := Run(t.Context(), c)
	if err != nil || r.Failed() {
		t.Fatalf("%v, %+v", err, r.Rows)
	}
	dev, err := c.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	identity["node GUID"] = binary.BigEndian.AppendUint64(nil, uint64(dev.Attr().NodeGUID))
	var out bytes.Buffer
	if err := r.Record(r.Report(Place{Device: "sim0", Driver: "mlx5"}), Describe(dev)).Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), identity
}

// No data is in a recorded file, and nothing that says whose it is; and it would be
// found, since without the mask it is.
func TestMaskWholeFile(t *testing.T) {
	file, identity := recorded(t, false)
	if found := leaks(file); len(found) > 0 {
		t.Errorf("data in the file: %s", strings.Join(found, "; "))
	}
	digits := hexDigits(file)
	for what, b := range identity {
		if bytes.Contains(file, b) || bytes.Contains(digits, []byte(hex.EncodeToString(b))) {
			t.Errorf("the %s % x is in the file", what, b)
		}
	}
	if len(identity) != 4 {
		t.Errorf("only %d things to look for", len(identity))
	}

	file, identity = recorded(t, true)
	if len(leaks(file)) == 0 {
		t.Error("data is not found where it is")
	}
	digits = hexDigits(file)
	if !bytes.Contains(digits, []byte(hex.EncodeToString(identity["address"]))) {
		t.Error("an address is not found where it is")
	}
}

// A file has requests and completions of every test that has any, which can be read.
func TestRecordContent(t *testing.T) {
	file, _ := recorded(t, false)
	var r Record
	if err := json.Unmarshal(file, &r); err != nil {
		t.Fatal(err)
	}
	if r.Format != 1 || !strings.Contains(r.About, "no data") || len(r.Rows) != len(tests()) || r.Limits.Attr.MaxQP == 0 || len(r.Limits.Ports) != 1 {
		t.Errorf("%+v", r)
	}
	cqes, wqes, failures := 0, 0, 0
	for _, test := range r.Tests {
		for _, c := range test.Completions {
			if c.Layout != "mlx5" {
				t.Fatalf("%+v", c)
			}
			cqe, wqe := bytesOf(t, c.CQE), bytesOf(t, c.WQE)
			if len(cqe) > 0 {
				cqes++
			}
			if len(wqe) > 0 {
				wqes++
			}
			if len(cqe) == 0 || c.WC.Status == 0 {
				continue
			}
			failures++
			if last := cqe[len(cqe)-64:]; last[63]>>4 != 0xd && last[63]>>4 != 0xe || last[54] != byte(c.WC.VendorErr) {
				t.Errorf("%s: %v, and the entry is % x", test.Test, c.WC, last)
			}
		}
	}
	if len(r.Tests) < len(tests())-5 || cqes < 200 || wqes < 200 || failures < 30 {
		t.Errorf("%d tests, %d completions, %d requests, %d failures", len(r.Tests), cqes, wqes, failures)
	}
}

func bytesOf(t *testing.T, rows []string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(strings.Join(rows, ""), " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// secrets is n bytes of the secret.
func secrets(n int) []byte { return bytes.Repeat(secret, (n+7)/8)[:n] }

// Data that a device leaves in an entry does not get out, whatever else is in it.
func TestMaskInlineScatter(t *testing.T) {
	for _, op := range []byte{0, 1, 2, 3, 4, 0xd, 0xe} {
		small := secrets(64)
		copy(small[32:], make([]byte, 32))
		small[63] = op<<4 | 1<<2 // 32 bytes of data, in the entry
		big := append(secrets(64), make([]byte, 64)...)
		big[127] = op<<4 | 2<<2 // 64 bytes, before it
		for _, b := range [][]byte{small, big} {
			got := newMask().mlx5CQE(b)
			if len(got) != len(b) || got[len(got)-1] != b[len(b)-1] {
				t.Errorf("opcode %#x: % x", op, got)
			}
			if found := leaks([]byte(strings.Join(rows(got), "\n"))); len(found) > 0 {
				t.Errorf("opcode %#x: %s", op, strings.Join(found, "; "))
			}
		}
	}
}

// Masks take what is too short, and everything else, and keep its length.
func FuzzMask(f *testing.F) {
	f.Add([]byte{}, true)
	f.Add(secrets(64), true)
	f.Add(secrets(256), false)
	f.Add(append([]byte{0, 0, 0, mlx5OpUMR}, secrets(300)...), false)
	f.Fuzz(func(t *testing.T, b []byte, datagram bool) {
		m := newMask()
		for name, got := range map[string][]byte{
			"mlx5 CQE": m.mlx5CQE(b), "mlx5 send": m.mlx5Send(b, datagram), "mlx5 receive": m.mlx5Recv(b),
			"rxe send": m.rxeSend(b), "rxe receive": m.rxeRecv(b),
		} {
			if len(got) != 0 && len(got) != len(b) {
				t.Errorf("%s: %d bytes of %d", name, len(got), len(b))
			}
		}
		m.rxeCQE(b)
	})
}

// soft-RoCE's requests: what carries data, operands of atomics, addresses and keys.
func TestMaskSoftRoCE(t *testing.T) {
	const slot = abi.SizeofRxeSendWQE + 64
	for opcode := range uint32(20) {
		for _, flags := range []uint32{0, rxeInline} {
			b := make([]byte, slot)
			copy(b, secrets(slot))
			var w abi.RxeSendWQE
			copy(w.Bytes(), b)
			// What may stay is other than the secret.
			w.WR.WRID, w.WR.Opcode, w.WR.SendFlags, w.WR.Reserved = 1, opcode, flags, 0
			w.Status, w.State, w.Mask, w.FirstPSN, w.LastPSN, w.AckLength, w.SSN, w.HasRdAtomic = 0, 0, 0, 0, 0, 0, 0, 0
			*w.WR.Ex.InvalidateRKey() = 0
			w.DMA = abi.RxeDMAInfo{Length: 64, NumSGE: 4}
			switch opcode {
			case rxeSend, rxeSendImm:
				w.WR.WR.UD().RemoteQPN, w.WR.WR.UD().AHNum = 17, 1
			case rxeFlush:
				w.WR.WR.Flush().Length = 64
			case rxeBind:
				w.WR.WR.MW().Length, w.WR.WR.MW().Access = 64, 1
			}
			copy(b, w.Bytes())
			if flags == 0 && opcode != rxeAtomicWrite { // else it is all data
				for i := range 4 {
					binary.NativeEndian.PutUint32(b[abi.SizeofRxeSendWQE+16*i+8:], 16) // length
				}
			}
			got := newMask().rxeSend(b)
			if len(got) != len(b) {
				t.Fatalf("opcode %d: %d bytes", opcode, len(got))
			}
			if found := leaks([]byte(strings.Join(rows(got), "\n"))); len(found) > 0 {
				t.Errorf("opcode %d, flags %#x: %s", opcode, flags, strings.Join(found, "; "))
			}
		}
	}
	b := secrets(abi.SizeofRxeRecvWQE + 32)
	var w abi.RxeRecvWQE
	w.WRID, w.DMA = 3, abi.RxeDMAInfo{Length: 32, NumSGE: 1}
	copy(b, w.Bytes())
	binary.NativeEndian.PutUint32(b[abi.SizeofRxeRecvWQE+8:], 32)
	if found := leaks([]byte(strings.Join(rows(newMask().rxeRecv(b)), "\n"))); len(found) > 0 {
		t.Errorf("a receive: %s", strings.Join(found, "; "))
	}
	var c abi.UverbsWC
	c.WRID, c.WCFlags = 5, rxeWCInvalidate
	*c.Ex.InvalidateRKey() = binary.NativeEndian.Uint32(secret)
	c.SLID = binary.NativeEndian.Uint16(secret)
	if found := leaks([]byte(strings.Join(rows(newMask().rxeCQE(c.Bytes())), "\n"))); len(found) > 0 {
		t.Errorf("a completion: %s", strings.Join(found, "; "))
	}
}

// Sentences keep what they say, and not of whom.
func TestScrub(t *testing.T) {
	n := newNames("storage7.example.org:18518")
	for in, want := range map[string]string{
		"connect to storage7.example.org: refused":                        "connect to HOST: refused",
		"goverbs: rocex0c42a1fffe123456: create CQ":                       "goverbs: rocexGUID: create CQ",
		"mlx5_0 and rxe0: 0x10":                                           "mlx5_0 and rxe0: 0x10",
		"no route to ::ffff:10.1.2.3 from fe80::1%eth0":                   "no route to ADDRESS from ADDRESS",
		"dial tcp 192.168.7.9:18518: i/o timeout":                         "dial tcp ADDRESS:18518: i/o timeout",
		"the MAC 02:00:5e:10:00:01, key 0x1a2b3c, status 10, 0x88":        "the MAC ADDRESS, key NUMBER, status 10, 0x88",
		"end a: request 3: remote access error (status 10): 64 bytes":     "end a: request 3: remote access error (status 10): 64 bytes",
		"end b: of 2 completions 0 came, and then none any more; recv: x": "end b: of 2 completions 0 came, and then none any more; recv: x",
	} {
		if got := n.scrub(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}
