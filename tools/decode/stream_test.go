package decode

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// logReader makes an ordinary log of a given size without holding it.
type logReader struct {
	block []byte
	at    int
	left  int64
}

func newLogReader(size int64) *logReader {
	r := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	for b.Len() < 4<<20 {
		h, m, s, n := r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(100000)
		switch r.IntN(6) {
		case 0:
			fmt.Fprintf(&b, "Nov 29 %02d:%02d:%02d node%d kernel: [%5d.%06d] usb 1-1: new high-speed USB device number %d using xhci_hcd\n", h, m, s, n%99, n, n, n%127)
		case 1:
			fmt.Fprintf(&b, "Nov 29 %02d:%02d:%02d node%d sshd[%d]: Accepted publickey for root from 10.%d.%d.7 port %d ssh2\n", h, m, s, n%99, n, h, m, n%65536)
		case 2:
			fmt.Fprintf(&b, "2026-11-29T%02d:%02d:%02d.%03dZ ERROR worker-%d request %x-%x failed: timeout after %dms\n", h, m, s, n%1000, n%64, n*77, n*13, n)
		case 3:
			fmt.Fprintf(&b, "node%d:%d:%d [%d] NCCL INFO Channel %02d/0 : %d[%d] -> %d[%d] via P2P/CUMEM/read\n", n%99, n, n+1, n%8, n%32, n%8, n%8, n%7, n%7)
		case 4:
			fmt.Fprintf(&b, "127.0.0.1 - - [29/Nov/2026:%02d:%02d:%02d +0000] \"GET /api/v1/items/%d HTTP/1.1\" 200 %d\n", h, m, s, n, n*3)
		case 5:
			fmt.Fprintf(&b, "Nov 29 %02d:%02d:%02d node%d systemd[1]: Started Session %d of user u%d.\n", h, m, s, n%99, n, n%50)
		}
	}
	return &logReader{block: b.Bytes(), left: size}
}

func (l *logReader) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(int64(len(p)), l.left)], l.block[l.at:])
	l.at = (l.at + n) % len(l.block)
	l.left -= int64(n)
	return n, nil
}

// nothing fails the test for any finding.
func nothing(t testing.TB) (func(*Finding) error, func(Note)) {
	return func(f *Finding) error {
			t.Errorf("found %+v", f)
			return errors.New("stop")
		}, func(n Note) {
			t.Errorf("note %+v", n)
		}
}

// TestStream reads a gigabyte (64 megabytes with -short) without a hit: memory
// stays where it was. It prints how fast that was: over 100 MB in a second of the
// processor is what is asked for, and a busy machine is no reason to fail.
func TestStream(t *testing.T) {
	size := int64(1 << 30)
	if testing.Short() || raceEnabled {
		size = 64 << 20
	}
	found, note := nothing(t)
	log := newLogReader(size)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start, cpu := time.Now(), cpuTime()
	if err := Scan(log, found, note); err != nil {
		t.Fatal(err)
	}
	cpu = cpuTime() - cpu
	wall := time.Since(start)
	runtime.ReadMemStats(&after)
	speed := float64(size) / 1e6 / cpu.Seconds()
	t.Logf("%d MB, %.0f MB/s of the processor, %.0f MB/s by the clock", size/1e6, speed, float64(size)/1e6/wall.Seconds())
	if n := after.TotalAlloc - before.TotalAlloc; n > 8<<20 {
		t.Errorf("%d bytes allocated for %d bytes read", n, size)
	}
}

// TestBoundedMemory reads a stream that holds every kind of state open: heads of
// dumps without ends, texts without ends, QPs without number.
func TestBoundedMemory(t *testing.T) {
	var text bytes.Buffer
	for i := range 20000 {
		fmt.Fprintf(&text, "[    1.0][    C%d] dump error cqe\n[    1.0][    C%d] 00000000: %s\n", i, i, zeroRow)
		fmt.Fprintf(&text, "send completion with error: remote access error qpn %#x vendor_err 0x88,\n", i)
	}
	n := 0
	var m runtime.MemStats
	peak := uint64(0)
	err := Scan(&text, func(*Finding) error {
		if n++; n%4000 == 0 {
			runtime.GC()
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapAlloc)
		}
		return nil
	}, func(Note) {})
	if err != nil || n != 20000 {
		t.Fatalf("found %d, %v", n, err)
	}
	if limit := uint64(24 << 20); peak > limit {
		t.Errorf("%d bytes in use, limit %d", peak, limit)
	}
}

// TestBinary reads what is no text: random bytes, all byte values, zeros.
func TestBinary(t *testing.T) {
	random := make([]byte, 4<<20)
	r := rand.NewChaCha8([32]byte{1})
	r.Read(random)
	for name, b := range map[string][]byte{
		"random": random,
		"zeros":  make([]byte, 1<<20),
		"0xff":   bytes.Repeat([]byte{0xff}, 1<<20),
		"escape": bytes.Repeat([]byte("\x1b["), 1<<19),
	} {
		found, note := nothing(t)
		if err := Scan(bytes.NewReader(b), found, note); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A hit in the middle of binary is found all the same.
	at := 0
	text := string(random[:100000]) + "\nGot completion with error 12, opcode 1, len 0, vendor err 129\n" + string(random[100000:200000])
	if err := Scan(strings.NewReader(text), func(f *Finding) error { at = f.Line; return nil }, func(Note) {}); err != nil || at == 0 {
		t.Errorf("found in line %d, %v", at, err)
	}
}

// TestLongLine puts hits at every distance from the places where long lines are
// cut into pieces.
func TestLongLine(t *testing.T) {
	hit := " NCCL WARN NET/IB : Got completion from peer 10.0.0.1<1> with status=12 opcode=129 len=1 vendor err 129 (Recv) "
	for shift := -len(hit) - 4; shift <= 4; shift++ {
		text := strings.Repeat("filler ", longest/7+2)[:longest+shift] + hit + strings.Repeat("filler ", 150000)
		_, got, _ := scanAll(t, text)
		if len(got) != 1 || got[0]["wc_status"] != 12.0 || got[0]["vendor_err_synd"] != 129.0 || got[0]["source_line"] != 1.0 {
			t.Fatalf("shift %d: found %v", shift, got)
		}
	}
	// A log whose newlines were lost.
	var line strings.Builder
	n := 0
	for ; line.Len() < 1<<20; n++ {
		fmt.Fprintf(&line, "NCCL WARN NET/IB : Got completion from peer 10.0.0.1<1> with status=12 opcode=129 len=1 vendor err %d (Recv) ", n%250+1)
	}
	_, got, _ := scanAll(t, line.String())
	if len(got) != n {
		t.Fatalf("found %d in one line, want %d", len(got), n)
	}
	for i, g := range got {
		if g["vendor_err_synd"] != float64(i%250+1) {
			t.Fatalf("finding %d: %v", i, g)
		}
	}
	// And one whose dumps are all in it.
	line.Reset()
	n = 0
	for ; line.Len() < 1<<20; n++ {
		line.WriteString(strings.ReplaceAll("dump error cqe\n"+numbered(fmt.Sprintf("00 00 00 00 00 00 88 13 08 00 %02x %02x f2 93 0b d3", n>>8, n&0xff)), "\n", " "))
	}
	_, got, _ = scanAll(t, line.String())
	if len(got) != n {
		t.Fatalf("found %d dumps in one line, want %d", len(got), n)
	}
	for i, g := range got {
		if g["qpn"] != float64(i) {
			t.Fatalf("dump %d: %v", i, g)
		}
	}
}

// tenThousand makes a log of dumps that differ in all that matters.
func tenThousand(form func(i int) string) string {
	var b strings.Builder
	for i := range 10000 {
		b.WriteString(form(i))
	}
	return b.String()
}

func tailOf(i int) string {
	return fmt.Sprintf("00 00 00 00 %02x 00 %02x 13 08 %02x %02x %02x %02x %02x 0b d3", i%256, i%251, i>>16, i>>8&0xff, i&0xff, i%199, i%197)
}

func wordsOf(tail string) string {
	f := strings.Fields(tail)
	var w []string
	for i := 0; i < 16; i += 4 {
		w = append(w, strings.Join(f[i:i+4], ""))
	}
	return strings.Join(w, " ")
}

// TestTenThousand: each dump is found once, in order, with its own bytes, whatever
// stands around it.
func TestTenThousand(t *testing.T) {
	for name, form := range map[string]func(i int) string{
		"plain": func(i int) string { return numbered(tailOf(i)) },
		"header": func(i int) string {
			return "[1.0] mlx5_0: dump_cqe:272:(pid 0): dump error cqe\n" + numbered(tailOf(i))
		},
		"words": func(i int) string { return worded("", fmt.Sprintf("%08x", i), wordsOf(tailOf(i))) },
		"words with header and a line": func(i int) string {
			return "mlx5: host: got completion with error:\n" + worded("", fmt.Sprintf("%08x", i), wordsOf(tailOf(i))) +
				fmt.Sprintf("[h:%d:0] rc_verbs_iface.c:109  send completion with error: remote access error qpn %#x wrid 0x1 vendor_err %#x\n", 7, i, i%251)
		},
		"mlx5e": func(i int) string {
			return fmt.Sprintf("[1.0] mlx5_core 0:0.0 e: Error cqe on cqn 0x1, ci 0x1, qn %#x, opcode 0xd, syndrome 0x13, vendor syndrome %#x\n", i, i%251) +
				numbered(tailOf(i)) + "[1.0] WQE DUMP: WQ size 1024 WQ cur size 0, WQE index 0xf, len: 64\n" + numbered("00 00 00 00 00 00 88 13 08 00 01 46 f2 93 0b d3")
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, got, _ := scanAll(t, tenThousand(form))
			if len(got) != 10000 {
				t.Fatalf("found %d", len(got))
			}
			for i, g := range got {
				hex := strings.ReplaceAll(tailOf(i), " ", "")
				if g["qpn"] != float64(i) || !strings.HasSuffix(g["hex"].(string), hex) {
					t.Fatalf("finding %d: %v, want the bytes %s", i, g, hex)
				}
			}
		})
	}
}

// TestHalfDump cuts every form of dump after every line and puts another dump
// behind it.
func TestHalfDump(t *testing.T) {
	for _, half := range []string{
		"dump error cqe\n" + numbered(tail146),
		numbered(tail146),
		"mlx5: a: got completion with error:\n" + worded("", "00000007", word146),
	} {
		lines := strings.SplitAfter(half, "\n")
		for n := range lines[:len(lines)-2] {
			cut := strings.Join(lines[:n], "")
			_, got, _ := scanAll(t, cut)
			if len(got) != 0 {
				t.Errorf("found %v in\n%s", got, cut)
			}
			_, got, _ = scanAll(t, cut+"\ndump error cqe\n"+numbered(tail1e9))
			if len(got) != 1 {
				t.Errorf("found %d in half a dump and a whole one\n%s", len(got), cut)
				continue
			}
			expect(t, got, 0, is1e9)
		}
	}
	_, _, notes := scanAll(t, "dump error cqe\n00000000: "+zeroRow+"\n")
	if len(notes) != 1 || !strings.Contains(notes[0].Text, "half a dump: 16 bytes") {
		t.Errorf("notes %v", notes)
	}
}

func TestReaderErrors(t *testing.T) {
	broken := errors.New("broken")
	text := "Got completion with error 12, opcode 1, len 0, vendor err 129\n"
	n := 0
	err := Scan(io.MultiReader(strings.NewReader(text), iotest.ErrReader(broken)), func(*Finding) error { n++; return nil }, func(Note) {})
	if !errors.Is(err, broken) || n != 1 {
		t.Errorf("%v after %d findings", err, n)
	}
	err = Scan(strings.NewReader(text+text), func(*Finding) error { return broken }, func(Note) {})
	if !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	err = Scan(stuck{}, func(*Finding) error { return nil }, func(Note) {})
	if !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("%v", err)
	}
}

// stuck is a reader that never returns anything.
type stuck struct{}

func (stuck) Read([]byte) (int, error) { return 0, nil }

func BenchmarkScanMiss(b *testing.B) {
	const size = 4 << 20
	b.SetBytes(size)
	b.ReportAllocs()
	log := newLogReader(0)
	found, note := nothing(b)
	for b.Loop() {
		log.left = size
		if err := Scan(log, found, note); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkScanDumps(b *testing.B) {
	text := tenThousand(func(i int) string { return numbered(tailOf(i)) })
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if err := Scan(strings.NewReader(text), func(*Finding) error { return nil }, func(Note) {}); err != nil {
			b.Fatal(err)
		}
	}
}
