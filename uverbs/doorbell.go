package uverbs

import (
	"syscall"

	"github.com/goverbs/goverbs/abi"
)

// doorbell tells soft-RoCE that a send queue has new requests. The call carries
// no requests: they are in the ring. Both forms are built once and live on the
// heap, which does not move. write() is the cheaper one, but the kernel refuses it
// after a change of credentials, and may one day refuse it altogether; the ioctl
// always works.
type doorbell struct {
	dev   *Device
	write []byte // for write(): header, core struct
	reply []byte // where the kernel writes its answer
	ioctl *request
}

// The header of struct ib_uverbs_cmd_hdr and the sizes that it counts.
const (
	writeHeaderSize = 8
	wordSize        = 4
	// The kernel wants at least the fixed part of its own, smaller, work
	// request struct; librxe says 128.
	bellWQESize = 128
)

func newDoorbell(qp *QP) *doorbell {
	b := &doorbell{dev: qp.dev}
	in := &abi.UverbsPostSend{QPHandle: qp.handle, WQESize: bellWQESize}
	out := new(abi.UverbsPostSendResp)
	b.reply = out.Bytes()
	b.ioctl = newCommand(qp.dev.driver, abi.IB_USER_VERBS_CMD_POST_SEND, in.Bytes(), b.reply)

	core := &abi.UverbsPostSend{Response: address(b.reply), QPHandle: qp.handle, WQESize: bellWQESize}
	b.write = make([]byte, writeHeaderSize, writeHeaderSize+abi.SizeofUverbsPostSend)
	b.write = append(b.write, core.Bytes()...)
	native.PutUint32(b.write[0:], abi.IB_USER_VERBS_CMD_POST_SEND)
	native.PutUint16(b.write[4:], uint16(len(b.write)/wordSize))
	native.PutUint16(b.write[6:], uint16(len(b.reply)/wordSize))
	return b
}

// ring rings. It returns the bare errno. It is part of Flush, which Close waits for.
func (b *doorbell) ring() error {
	d := b.dev
	if !d.noWrite.Load() {
		err := d.file.Write(b.write)
		if err == nil || !isErrno(err, syscall.EACCES, syscall.EPERM, syscall.EINVAL, syscall.ENOSYS) {
			return err
		}
	}
	b.ioctl.rearm()
	err := d.do(b.ioctl)
	if err == nil && !d.noWrite.Load() {
		// The same request goes through this way: write() is not for us.
		d.noWrite.Store(true)
	}
	return err
}
