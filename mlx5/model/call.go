package model

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/abi/request"
)

// methodID is a method of an object type.
type methodID struct{ object, method uint16 }

var (
	getContext  = methodID{abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_GET_CONTEXT}
	invokeWrite = methodID{abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_INVOKE_WRITE}
)

// methods are those that the driver has. What is not here is EPROTONOSUPPORT.
var methods map[methodID]func(*call) error

// commands are the write commands that the driver has.
var commands map[uint32]func(c *call, cmd *abi.Command, in []byte) error

const extended = abi.IB_USER_VERBS_CMD_FLAG_EXTENDED

func init() {
	methods = map[methodID]func(*call) error{
		invokeWrite: (*call).invokeWrite,
		getContext:  (*call).getContext,
		{abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_QUERY_CONTEXT}:          (*call).queryContext,
		{abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_QUERY_PORT}:             (*call).queryPort,
		{abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_QUERY_GID_TABLE}:        (*call).queryGIDTable,
		{abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_QUERY_GID_ENTRY}:        (*call).queryGIDEntry,
		{abi.UVERBS_OBJECT_ASYNC_EVENT, abi.UVERBS_METHOD_ASYNC_EVENT_ALLOC}: (*call).allocAsync,
		{abi.UVERBS_OBJECT_PD, abi.UVERBS_METHOD_PD_DESTROY}:                 (*call).destroyPD,
		{abi.UVERBS_OBJECT_PD, abi.MLX5_IB_METHOD_PD_QUERY}:                  (*call).queryPD,
		{abi.UVERBS_OBJECT_MR, abi.UVERBS_METHOD_MR_DESTROY}:                 (*call).destroyMR,
		{abi.UVERBS_OBJECT_MR, abi.UVERBS_METHOD_QUERY_MR}:                   (*call).queryMR,
		{abi.UVERBS_OBJECT_MW, abi.UVERBS_METHOD_MW_DESTROY}:                 (*call).destroyMW,
		{abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_CREATE}:                  (*call).createCQ,
		{abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_DESTROY}:                 (*call).destroyCQ,
		{abi.UVERBS_OBJECT_QP, abi.UVERBS_METHOD_QP_CREATE}:                  (*call).createQP,
		{abi.UVERBS_OBJECT_QP, abi.UVERBS_METHOD_QP_DESTROY}:                 (*call).destroyQP,
		{abi.UVERBS_OBJECT_SRQ, abi.UVERBS_METHOD_SRQ_CREATE}:                (*call).createSRQ,
		{abi.UVERBS_OBJECT_SRQ, abi.UVERBS_METHOD_SRQ_DESTROY}:               (*call).destroySRQ,
		{abi.UVERBS_OBJECT_AH, abi.UVERBS_METHOD_AH_DESTROY}:                 (*call).destroyAH,
		{abi.MLX5_IB_OBJECT_UAR, abi.MLX5_IB_METHOD_UAR_OBJ_ALLOC}:           (*call).allocUAR,
		{abi.MLX5_IB_OBJECT_UAR, abi.MLX5_IB_METHOD_UAR_OBJ_DESTROY}:         (*call).destroyUAR,
		// The firmware knows no command.
		{abi.MLX5_IB_OBJECT_DEVX, abi.MLX5_IB_METHOD_DEVX_OTHER}: func(*call) error { return request.EOPNOTSUPP },
	}
	commands = map[uint32]func(*call, *abi.Command, []byte) error{
		abi.IB_USER_VERBS_CMD_QUERY_DEVICE:               (*call).queryDevice,
		extended | abi.IB_USER_VERBS_EX_CMD_QUERY_DEVICE: (*call).queryDeviceEx,
		abi.IB_USER_VERBS_CMD_ALLOC_PD:                   (*call).allocPD,
		abi.IB_USER_VERBS_CMD_REG_MR:                     (*call).regMR,
		abi.IB_USER_VERBS_CMD_REREG_MR:                   (*call).reregMR,
		abi.IB_USER_VERBS_CMD_ALLOC_MW:                   (*call).allocMW,
		abi.IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL:        (*call).createChannel,
		abi.IB_USER_VERBS_CMD_RESIZE_CQ:                  (*call).resizeCQ,
		extended | abi.IB_USER_VERBS_EX_CMD_MODIFY_CQ:    (*call).modifyCQ,
		abi.IB_USER_VERBS_CMD_MODIFY_QP:                  (*call).modifyQP,
		extended | abi.IB_USER_VERBS_EX_CMD_MODIFY_QP:    (*call).modifyQPEx,
		abi.IB_USER_VERBS_CMD_QUERY_QP:                   (*call).queryQP,
		abi.IB_USER_VERBS_CMD_MODIFY_SRQ:                 (*call).modifySRQ,
		abi.IB_USER_VERBS_CMD_QUERY_SRQ:                  (*call).querySRQ,
		abi.IB_USER_VERBS_CMD_CREATE_AH:                  (*call).createAH,
		abi.IB_USER_VERBS_CMD_ATTACH_MCAST:               (*call).attachMulticast,
		abi.IB_USER_VERBS_CMD_DETACH_MCAST:               (*call).detachMulticast,
	}
}

// supports says whether the driver has a method.
func (f *File) supports(m *abi.Method) bool {
	if m.Object == abi.MLX5_IB_OBJECT_UAR && f.dev.cfg.StaticUARs {
		return false
	}
	_, ok := methods[methodID{m.Object, m.ID}]
	return ok
}

// call is one ioctl while it runs.
type call struct {
	*request.Request
	f *File
	// made takes back what the call made, for when it fails in the end.
	made []func()
	// refs are the objects of the call, for who traces.
	refs []ObjectRef
}

// refuse is an error with a reason.
func refuse(n request.Errno, reason string) error { return &request.Error{Errno: n, Reason: reason} }

// invokeWrite runs a write command in the envelope of an ioctl.
func (c *call) invokeWrite() error {
	cmd, in, err := c.Command(func(cmd *abi.Command) bool { return commands[cmd.Number] != nil })
	if err != nil {
		return err
	}
	if c.f.ctx == nil {
		return request.EINVAL
	}
	return commands[cmd.Number](c, cmd, in)
}

// reply fills the core response of a write command.
func (c *call) reply(b []byte) error { return c.SetCoreOut(b) }

func (c *call) setUint32(attr uint16, v uint32) error {
	return c.SetOut(attr, binary.NativeEndian.AppendUint32(nil, v))
}

// add enters a new object and undoes that if the call fails in the end.
func (c *call) add(o object) uint32 {
	h := c.f.ctx.add(o)
	c.made = append(c.made, func() { c.f.ctx.destroy(h) })
	c.refer(h, o, true)
	return h
}

// addTo is add, and writes the handle into the attribute.
func (c *call) addTo(attr uint16, o object) (uint32, error) {
	h := c.add(o)
	return h, c.SetHandle(attr, h)
}

// queue finds the event queue that an attribute names, nil without it.
func (c *call) queue(attr uint16, completion bool) (*EventQueue, error) {
	fd, ok := c.FD(attr)
	if !ok {
		return nil, nil
	}
	e := c.f.queues[fd]
	if e == nil || e.completion != completion {
		return nil, refuse(request.EBADF, "the descriptor is of no event queue of that kind")
	}
	return e, nil
}

func (c *call) newQueue(completion bool) (*EventQueue, error) {
	e, err := c.f.newQueue(completion)
	if err == nil {
		c.made = append(c.made, e.close)
		c.referQueue(e)
	}
	return e, err
}

func (c *call) allocAsync() error {
	e, err := c.newQueue(false)
	if err != nil {
		return err
	}
	if c.f.asyncs == nil {
		c.f.asyncs = e
	}
	return c.SetFD(abi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, e.fd)
}

func (c *call) createChannel(*abi.Command, []byte) error {
	e, err := c.newQueue(true)
	if err != nil {
		return err
	}
	return c.reply((&abi.UverbsCreateCompChannelResp{FD: uint32(e.fd)}).Bytes())
}

// lookup finds an object of a type by a handle attribute.
func lookup[T object](c *call, attr uint16) (T, uint32, error) {
	h, _ := c.Handle(attr)
	o, ok := c.f.ctx.objects[h].(T)
	if !ok {
		return o, h, refuse(request.ENOENT, "no object of that type has the handle")
	}
	c.refer(h, o, false)
	return o, h, nil
}

// lookupWrite finds an object of a type by a handle in a write command, where the
// kernel's word for none is another.
func lookupWrite[T object](c *call, h uint32) (T, error) {
	o, ok := c.f.ctx.objects[h].(T)
	if !ok {
		return o, refuse(request.EINVAL, "no object of that type has the handle")
	}
	c.refer(h, o, false)
	return o, nil
}

// destroyUnused destroys the object of a handle attribute if nothing stands on it.
func destroyUnused[T object](c *call, attr uint16) (T, error) {
	o, h, err := lookup[T](c, attr)
	if err != nil {
		return o, err
	}
	if o.inUse() {
		return o, refuse(request.EBUSY, "other objects stand on it")
	}
	c.f.ctx.destroy(h)
	return o, nil
}
