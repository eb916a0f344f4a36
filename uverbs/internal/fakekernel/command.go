package fakekernel

import (
	"syscall"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
)

// commands are the write commands that the fake kernel has, without a native
// method.
var commands map[uint32]func(c *ioctl, cmd *abi.Command, in []byte) error

func init() {
	commands = map[uint32]func(*ioctl, *abi.Command, []byte) error{
		abi.IB_USER_VERBS_CMD_QUERY_DEVICE: func(c *ioctl, cmd *abi.Command, in []byte) error {
			return c.reply(c.f.dev.queryDevice().Base.Bytes())
		},
		extended | abi.IB_USER_VERBS_EX_CMD_QUERY_DEVICE: func(c *ioctl, cmd *abi.Command, in []byte) error {
			var q abi.UverbsExQueryDevice
			if err := request.Fill(cmd, q.Bytes(), in); err != nil {
				return err
			}
			if q.CompMask != 0 || q.Reserved != 0 {
				return syscall.EINVAL
			}
			resp := c.f.dev.queryDevice()
			room, _ := c.OutLen(abi.UVERBS_ATTR_CORE_OUT)
			resp.ResponseLength = uint32(min(room, abi.SizeofUverbsExQueryDeviceResp))
			return c.reply(resp.Bytes())
		},
		abi.IB_USER_VERBS_CMD_ALLOC_PD:            (*ioctl).allocPD,
		abi.IB_USER_VERBS_CMD_REG_MR:              (*ioctl).regMR,
		abi.IB_USER_VERBS_CMD_REREG_MR:            (*ioctl).reregMR,
		abi.IB_USER_VERBS_CMD_ALLOC_MW:            (*ioctl).allocMW,
		abi.IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL: (*ioctl).createChannel,
		abi.IB_USER_VERBS_CMD_REQ_NOTIFY_CQ:       (*ioctl).requestNotify,
		abi.IB_USER_VERBS_CMD_RESIZE_CQ:           (*ioctl).resizeCQ,
		abi.IB_USER_VERBS_CMD_MODIFY_QP:           (*ioctl).modifyQP,
		abi.IB_USER_VERBS_CMD_QUERY_QP:            (*ioctl).queryQP,
		abi.IB_USER_VERBS_CMD_MODIFY_SRQ:          (*ioctl).modifySRQ,
		abi.IB_USER_VERBS_CMD_QUERY_SRQ:           (*ioctl).querySRQ,
		abi.IB_USER_VERBS_CMD_CREATE_AH:           (*ioctl).createAH,
		abi.IB_USER_VERBS_CMD_ATTACH_MCAST:        (*ioctl).attachMulticast,
		abi.IB_USER_VERBS_CMD_DETACH_MCAST:        (*ioctl).detachMulticast,
		abi.IB_USER_VERBS_CMD_POST_SEND: func(c *ioctl, cmd *abi.Command, in []byte) error {
			var p abi.UverbsPostSend
			copy(p.Bytes(), in)
			if err := c.f.ctx.postSend(&p); err != nil {
				return err
			}
			return c.reply(new(abi.UverbsPostSendResp).Bytes())
		},
	}
}

const extended = abi.IB_USER_VERBS_CMD_FLAG_EXTENDED

// invokeWrite runs a write command in the envelope of an ioctl.
func (c *ioctl) invokeWrite() error {
	cmd, in, err := c.Command(func(cmd *abi.Command) bool {
		_, ok := commands[cmd.Number]
		return ok && !c.f.dev.lacksCommand(cmd.Number)
	})
	if err != nil {
		return err
	}
	if c.f.ctx == nil {
		return syscall.EINVAL
	}
	return commands[cmd.Number](c, cmd, in)
}

// reply fills the core response.
func (c *ioctl) reply(b []byte) error { return c.set(abi.UVERBS_ATTR_CORE_OUT, b) }

func (c *ioctl) createChannel(cmd *abi.Command, in []byte) error {
	e, err := c.newEvents(completionChannel)
	if err != nil {
		return err
	}
	c.f.ctx.channels = append(c.f.ctx.channels, e)
	return c.reply((&abi.UverbsCreateCompChannelResp{FD: uint32(e.FD())}).Bytes())
}

func (c *ioctl) allocPD(cmd *abi.Command, in []byte) error {
	h := c.add(&pd{})
	return c.reply((&abi.UverbsAllocPDResp{PDHandle: h}).Bytes())
}
