package request_test

import (
	"errors"

	"github.com/goverbs/goverbs/abi"
)

// memory is a program's address space: one piece that starts at base.
type memory struct {
	base  uint64
	bytes []byte
}

var errFault = errors.New("nothing is mapped there")

func (m *memory) at(addr uint64, n int) ([]byte, error) {
	off := addr - m.base
	if addr < m.base || off > uint64(len(m.bytes)) || uint64(n) > uint64(len(m.bytes))-off {
		return nil, errFault
	}
	return m.bytes[off:][:n], nil
}

func (m *memory) Read(addr uint64, p []byte) error {
	b, err := m.at(addr, len(p))
	copy(p, b)
	return err
}

func (m *memory) Write(addr uint64, p []byte) error {
	b, err := m.at(addr, len(p))
	copy(b, p)
	return err
}

// alloc adds bytes at the next multiple of eight and returns their address.
func (m *memory) alloc(b []byte) uint64 {
	for len(m.bytes)%8 != 0 {
		m.bytes = append(m.bytes, 0)
	}
	addr := m.base + uint64(len(m.bytes))
	m.bytes = append(m.bytes, b...)
	return addr
}

// call lays out a request. Attributes come first, the header is right before them.
func (m *memory) call(hdr abi.UverbsIoctlHdr, attrs ...abi.UverbsAttr) uint64 {
	hdr.NumAttrs = uint16(len(attrs))
	if hdr.Length == 0 {
		hdr.Length = uint16(abi.SizeofUverbsIoctlHdr + len(attrs)*abi.SizeofUverbsAttr)
	}
	b := append([]byte(nil), hdr.Bytes()...)
	for i := range attrs {
		b = append(b, attrs[i].Bytes()...)
	}
	return m.alloc(b)
}

func newMemory() *memory { return &memory{base: 0x10000} }
