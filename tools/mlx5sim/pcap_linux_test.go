package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Wireshark reads the packets of ibv_rc_pingpong: operations, queue pairs and lengths are
// those of its messages.
func TestPcapDissected(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("declared skip: there is no tshark: install it")
	}
	const rounds = 5
	for _, c := range []struct {
		tool, flags, gid string
		size             int
		want             []string // operation, length of the UDP datagram
	}{
		// With an MTU of 1024 four packets and an acknowledgement. Headers are UDP, BTH, AETH and ICRC.
		{"ibv_rc_pingpong", "-link eth", "1", 4096, []string{"0 1048", "1 1048", "1 1048", "2 1048", "17 28"}},
		{"ibv_rc_pingpong", "-link ib", "0", 1001, []string{"4 1028", "17 28"}},
		{"ibv_uc_pingpong", "-link eth", "1", 2048, []string{"32 1048", "34 1048"}},
		{"ibv_ud_pingpong", "-link eth", "1", 1024, []string{"100 1056"}},
	} {
		t.Run(c.tool+" "+c.flags, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "packets.pcap")
			game := append(tool(t, c.tool), "-e", "-p", port(t), "-n", fmt.Sprint(rounds), "-g", c.gid, "-s", fmt.Sprint(c.size))
			args := append(strings.Fields(c.flags), "-trace", "-pcap", file, "-wait", patience.String(), "--")
			args = append(append(append(append(args, game...), "--and"), game...), "localhost")
			out, code := simulated(t, me(), args...)
			if code != 0 {
				t.Fatalf("status %d: %s", code, out)
			}
			dissect := exec.Command(tshark, "-n", "-r", file, "-T", "fields", "-E", "separator= ", "-e", "infiniband.bth.opcode", "-e", "udp.length", "-e", "infiniband.bth.destqp")
			b, err := dissect.Output()
			if err != nil {
				t.Fatalf("tshark: %v", err)
			}
			var qps []string // that the packets of one message go to: there, and back
			lines := strings.Split(strings.TrimSpace(string(b)), "\n")
			if want := 2 * rounds * len(c.want); len(lines) != want {
				t.Fatalf("%d packets, want %d:\n%s", len(lines), want, b)
			}
			for i, l := range lines {
				f := strings.Fields(l)
				if len(f) != 3 || strings.Join(f[:2], " ") != c.want[i%len(c.want)] {
					t.Fatalf("packet %d: %q, want %s", i, l, c.want[i%len(c.want)])
				}
				if i%len(c.want) == 0 {
					qps = append(qps, f[2])
				}
			}
			for i, q := range qps {
				if q != qps[i%2] || i > 0 && q == qps[i-1] || !strings.Contains(out, " to QP 0x"+strings.TrimLeft(strings.TrimPrefix(q, "0x"), "0")+",") {
					t.Errorf("message %d goes to QP %s, of %v", i, q, qps)
				}
			}
		})
	}
}
