package nldev

import (
	"errors"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/abi"
)

func TestGarbageIsRefused(t *testing.T) {
	name := func(s string) []byte {
		return pack(u32(abi.RDMA_NLDEV_ATTR_DEV_INDEX, 1), str(abi.RDMA_NLDEV_ATTR_DEV_NAME, s))
	}
	for what, b := range map[string][]byte{
		"nothing":             nil,
		"no name":             pack(u32(abi.RDMA_NLDEV_ATTR_DEV_INDEX, 1)),
		"no index":            pack(str(abi.RDMA_NLDEV_ATTR_DEV_NAME, "rxe0")),
		"half an attribute":   rxeLink()[:6],
		"three loose bytes":   append(rxeLink(), 1, 2, 3),
		"short number":        append(rxeLink(), pack(u8(abi.RDMA_NLDEV_ATTR_PORT_INDEX, 1))...),
		"long number":         append(rxeLink(), pack(u64(abi.RDMA_NLDEV_ATTR_PORT_INDEX, 1))...),
		"a path as name":      name("../../etc/passwd"),
		"the folder above":    name(".."),
		"an escape sequence":  name("rxe\x1b[2J"),
		"a name with a space": name("rxe 0"),
		"an endless name":     name(strings.Repeat("x", 64)),
		"zeros in a name":     name("rxe\x000"),
		"no final zero": append(rxeLink(), pack(u32(abi.RDMA_NLDEV_ATTR_DEV_NAME,
			0x30657872))...),
	} {
		if l, err := parseLink(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %+v, %v", what, l, err)
		}
	}
}

func TestGarbagePorts(t *testing.T) {
	for what, b := range map[string][]byte{
		"nothing": nil,
		"port 0":  append(rxePort(), pack(u32(abi.RDMA_NLDEV_ATTR_PORT_INDEX, 0))...),
		"a long network device": append(rxePort(), pack(str(abi.RDMA_NLDEV_ATTR_NDEV_NAME,
			"sixteen-letters-"))...),
	} {
		if p, err := parsePort(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %+v, %v", what, p, err)
		}
	}
}

func TestGarbageChardevs(t *testing.T) {
	for what, b := range map[string][]byte{
		"nothing":          nil,
		"device number 0":  append(rxeChardev(), pack(u64(abi.RDMA_NLDEV_ATTR_CHARDEV, 0))...),
		"a path":           append(rxeChardev(), pack(str(abi.RDMA_NLDEV_ATTR_CHARDEV_NAME, "../mem"))...),
		"a huge driver id": append(rxeChardev(), pack(u64(abi.RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID, 1<<32))...),
	} {
		if d, err := parseChardev(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %+v, %v", what, d, err)
		}
	}
}

func TestGarbageCounts(t *testing.T) {
	parse := resourceTable.parse
	for what, b := range map[string][]byte{
		"an entry without number": pack(table(abi.RDMA_NLDEV_ATTR_RES_SUMMARY,
			table(abi.RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY, str(abi.RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME, "qp")))),
		"an entry without name": pack(table(abi.RDMA_NLDEV_ATTR_RES_SUMMARY,
			table(abi.RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY, u64(abi.RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR, 1)))),
		"a table that is no table": pack(u8(abi.RDMA_NLDEV_ATTR_RES_SUMMARY, 1)),
	} {
		if c, err := parse(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v, %v", what, c, err)
		}
	}
	if c, err := parse(nil); err != nil || len(c) != 0 {
		t.Errorf("no table: %v, %v", c, err)
	}
}

// FuzzNldev gives every parser the bytes of an answer. What is accepted must be
// fit for its use: names for paths, texts for terminals; and an accepted answer
// means the same without its unknown attributes.
func FuzzNldev(f *testing.F) {
	for _, b := range [][]byte{rxeLink(), rxePort(), rxeChardev(), rxeCounts()} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if l, err := parseLink(b); err == nil {
			checkName(t, l.Name)
			checkText(t, l.Firmware)
			checkText(t, l.Protocol)
			again, err := parseLink(packLink(l))
			if err != nil || again != l {
				t.Errorf("%+v, packed again: %+v, %v", l, again, err)
			}
		}
		if p, err := parsePort(b); err == nil {
			checkName(t, p.Device)
			if p.Netdev != "" {
				checkName(t, p.Netdev)
			}
			if p.Index == 0 {
				t.Error("port 0")
			}
		}
		if d, err := parseChardev(b); err == nil {
			checkName(t, d.Name)
			if d.Dev == 0 {
				t.Error("device number 0")
			}
		}
		counts, err := resourceTable.parse(b)
		if err == nil {
			for name := range counts {
				checkName(t, name)
			}
			// An entry takes at least 24 bytes.
			if len(counts) > len(b)/24 {
				t.Errorf("%d entries out of %d bytes", len(counts), len(b))
			}
		}
		if _, err := parseSystem(b); err != nil && !errors.Is(err, ErrMalformed) {
			t.Error(err)
		}
	})
}

func checkName(t *testing.T, s string) {
	t.Helper()
	if s == "" || s == "." || s == ".." || strings.ContainsAny(s, "/ ") || len(s) > 255 {
		t.Errorf("%q was taken for a name", s)
	}
	checkText(t, s)
}

func checkText(t *testing.T, s string) {
	t.Helper()
	for _, c := range []byte(s) {
		if c < 0x20 || c > 0x7e {
			t.Errorf("%q was taken for text", s)
		}
	}
}

func packLink(l Link) []byte {
	dim := uint8(0)
	if l.AdaptiveModeration {
		dim = 1
	}
	return pack(
		u32(abi.RDMA_NLDEV_ATTR_DEV_INDEX, l.Index),
		str(abi.RDMA_NLDEV_ATTR_DEV_NAME, l.Name),
		u32(abi.RDMA_NLDEV_ATTR_PORT_INDEX, l.Ports),
		u64(abi.RDMA_NLDEV_ATTR_CAP_FLAGS, l.CapFlags),
		str(abi.RDMA_NLDEV_ATTR_FW_VERSION, l.Firmware),
		u64(abi.RDMA_NLDEV_ATTR_NODE_GUID, l.NodeGUID),
		u64(abi.RDMA_NLDEV_ATTR_SYS_IMAGE_GUID, l.SysImageGUID),
		u8(abi.RDMA_NLDEV_ATTR_DEV_NODE_TYPE, uint8(l.NodeType)),
		str(abi.RDMA_NLDEV_ATTR_DEV_PROTOCOL, l.Protocol),
		u8(abi.RDMA_NLDEV_ATTR_DEV_DIM, dim),
	)
}

func parseLink(b []byte) (l Link, err error) {
	err = l.parse(b)
	return l, err
}
