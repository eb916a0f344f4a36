package selftest

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// fill writes the pattern of a seed: other bytes for other seeds and places. With a
// marker it is that, over and over, behind the seed: a test finds it wherever it went.
func fill(b []byte, seed uint64, marker []byte) {
	if len(marker) > 0 {
		for i := range b {
			b[i] = marker[i%len(marker)]
		}
		return
	}
	x := seed*0x9e3779b97f4a7c15 + 0x2545f4914f6cdd1d
	for i := 0; i < len(b); i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], x)
		copy(b[i:], word[:])
	}
}

// differ says where memory is not the pattern of a seed. The device may write there
// meanwhile: it is read once.
func differ(memory []byte, seed uint64, marker []byte) error {
	b := bytes.Clone(memory)
	want := make([]byte, len(b))
	fill(want, seed, marker)
	if bytes.Equal(b, want) {
		return nil
	}
	n, first := 0, -1
	for i := range b {
		if b[i] != want[i] {
			if n++; first < 0 {
				first = i
			}
		}
	}
	return fmt.Errorf("of %d bytes %d are wrong, the first at %d: %#02x and not %#02x", len(b), n, first, b[first], want[first])
}
