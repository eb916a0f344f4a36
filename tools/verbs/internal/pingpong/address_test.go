package pingpong

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// What ibv_rc_pingpong of rdma-core 44 wrote to the socket for the address that
// it printed as LID 0x0000, QPN 0x000011, PSN 0x11c403, GID ::ffff:10.0.0.1.
const wireAddress = "0000:000011:11c403:00000000000000000000ffff0a000001\x00"

var someAddress = Address{QPN: 0x11, PSN: 0x11c403, GID: uverbs.GID{10: 0xff, 11: 0xff, 12: 10, 15: 1}}

func TestAddress(t *testing.T) {
	if got := string(someAddress.appendTo(nil)); got != wireAddress {
		t.Errorf("sent %q, want %q", got, wireAddress)
	}
	if got, err := parseAddress([]byte(wireAddress)); err != nil || got != someAddress {
		t.Errorf("parsed %+v, %v, want %+v", got, err, someAddress)
	}
	const text = "LID 0x0000, QPN 0x000011, PSN 0x11c403, GID ::ffff:10.0.0.1"
	if got := someAddress.String(); got != text {
		t.Errorf("printed %q, want %q", got, text)
	}
	a := Address{LID: 0xfffe, QPN: most24, PSN: most24, GID: uverbs.GID{0: 0xfe, 1: 0x80, 15: 0xa5}}
	if got, err := parseAddress(a.appendTo(nil)); err != nil || got != a {
		t.Errorf("parsed %+v, %v, want %+v", got, err, a)
	}
}

func TestParseAddressRefuses(t *testing.T) {
	for _, bad := range []string{
		"",
		"done\x00",
		wireAddress[:len(wireAddress)-1],
		wireAddress + "\x00",
		strings.Replace(wireAddress, "\x00", "0", 1),
		strings.Replace(wireAddress, ":", ";", 1),
		"0x00" + wireAddress[4:],
		"-001" + wireAddress[4:],
		"+001" + wireAddress[4:],
		"00_0" + wireAddress[4:],
		"0000:00001g" + wireAddress[11:],
		wireAddress[:12] + "      " + wireAddress[18:],
		wireAddress[:19] + strings.Repeat("x", 32) + "\x00",
		"GET / HTTP/1.1\r\nHost: 10.0.0.1:18515\r\nUser-Agent: x\r\n"[:addressSize],
		strings.Repeat("\x00", addressSize),
	} {
		if a, err := parseAddress([]byte(bad)); err == nil || a != (Address{}) {
			t.Errorf("%q was taken for %v, %v", bad, a, err)
		}
	}
}

// Whatever is taken for an address means that address and no other.
func FuzzParseAddress(f *testing.F) {
	f.Add([]byte(wireAddress))
	f.Add([]byte(strings.ToUpper(wireAddress)))
	f.Add([]byte("done\x00"))
	f.Fuzz(func(t *testing.T, msg []byte) {
		a, err := parseAddress(msg)
		if err != nil {
			if a != (Address{}) {
				t.Errorf("%q: %v with an error", msg, a)
			}
			return
		}
		if got := string(a.appendTo(nil)); got != strings.ToLower(string(msg)) {
			t.Errorf("%q means %v, which is sent as %q", msg, a, got)
		}
	})
}
