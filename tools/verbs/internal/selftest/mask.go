package selftest

import (
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// mask takes out of work requests and completions what is nobody else's business. It
// knows what may stay and copies that, so that what it does not know is zeros.
type mask struct {
	keys map[uint32]uint32
}

func newMask() *mask { return &mask{keys: map[uint32]uint32{}} }

// key is the number of a key: from 1, in the order in which they came. 0 is 0.
func (m *mask) key(k uint32) uint32 {
	if k == 0 {
		return 0
	}
	n, ok := m.keys[k]
	if !ok {
		n = uint32(len(m.keys) + 1)
		m.keys[k] = n
	}
	return n
}

// keyAt copies the number of a key, where it has four bytes in an order.
func (m *mask) keyAt(to, from []byte, order binary.ByteOrder) {
	order.PutUint32(to, m.key(order.Uint32(from)))
}

// inPage is what is left of an address.
const inPage = 0xfff

func addressAt(to, from []byte, order binary.ByteOrder) {
	order.PutUint64(to, order.Uint64(from)&inPage)
}

// names takes names and addresses out of sentences.
type names struct {
	words                                []string
	addressWords, guidNames, longNumbers *regexp.Regexp
}

// newNames knows the names of this host and of the other one.
func newNames(peer string) *names {
	n := &names{
		addressWords: regexp.MustCompile(`(?i)(?:[0-9a-f]{0,4}:){2,}[0-9a-f]{0,4}(?:\.[0-9]+)*(?:%[a-z0-9.]+)?|\b[0-9]{1,3}(?:\.[0-9]{1,3}){3}\b`),
		// Of GUIDs udev makes device names, such as rocex0c42a1fffe123456.
		guidNames:   regexp.MustCompile(`(?i)x[0-9a-f]{12,16}\b`),
		longNumbers: regexp.MustCompile(`(?i)\b0x[0-9a-f]{5,}\b`),
	}
	if host, _, err := net.SplitHostPort(peer); err == nil && host != "" {
		n.words = append(n.words, host)
	}
	if host, err := os.Hostname(); err == nil && len(host) > 2 {
		n.words = append(n.words, host)
	}
	return n
}

func (n *names) scrub(s string) string {
	for _, w := range n.words {
		s = strings.ReplaceAll(s, w, "HOST")
	}
	s = n.addressWords.ReplaceAllStringFunc(s, func(a string) string {
		if strings.Trim(a, ":") == "" {
			return a // punctuation
		}
		return "ADDRESS"
	})
	s = n.guidNames.ReplaceAllString(s, "xGUID")
	return n.longNumbers.ReplaceAllString(s, "NUMBER")
}

// boardID is the kind of board that a device is, "" if nobody says.
func boardID(device string) string {
	b, err := os.ReadFile(filepath.Join("/sys/class/infiniband", filepath.Base(device), "board_id"))
	if err != nil || len(b) > 64 {
		return ""
	}
	return strings.TrimSpace(string(b))
}
