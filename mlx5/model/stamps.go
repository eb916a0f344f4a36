package model

import "github.com/goverbs/goverbs/abi/request"

// stampFormat is how completions of a queue pair are stamped: MLX5_TIMESTAMP_FORMAT_*
// of the kernel's mlx5_ifc.h.
type stampFormat uint8

const (
	stampTicks stampFormat = iota
	stampDefault
	stampRealTime
)

// stampFormat is what the completion queue asks of a queue pair.
func (q *cq) stampFormat() (stampFormat, error) {
	formats := q.d.cfg.Timestamps
	switch {
	case q.realTime && formats == TicksOnly:
		return 0, refuse(request.EOPNOTSUPP, "time stamps in real time, which the device has not")
	case q.realTime:
		return stampRealTime, nil
	case q.stamps && formats == RealTimeOnly:
		return 0, refuse(request.EOPNOTSUPP, "time stamps in ticks, which the device has not")
	case formats == RealTimeOnly:
		return stampDefault, nil
	}
	return stampTicks, nil
}

// checkStamps refuses a queue pair whose completion queues want to be stamped in two
// ways, or in one that the device has not: get_qp_ts_format of the kernel's
// drivers/infiniband/hw/mlx5/qp.c.
func (q *qp) checkStamps() error {
	send, err := q.sendCQ.stampFormat()
	if err != nil {
		return err
	}
	recv, err := q.recvCQ.stampFormat()
	if err != nil {
		return err
	}
	if send != recv && send != stampDefault && recv != stampDefault {
		return refuse(request.EOPNOTSUPP, "the completion queues ask for time stamps in two formats")
	}
	return nil
}
