package model

import "time"

// refill gives the next request its full number of attempts.
func (q *qp) refill() {
	q.retries, q.rnrRetries, q.faultedHead = q.attr.retry, q.attr.rnrRetry, false
}

// timeOut waits for the acknowledgement of a request that was lost. Then it is
// sent again, or has expired.
func (q *qp) timeOut() {
	d := q.ackTimeout()
	if d == 0 {
		// Without a time-out nothing is ever sent again.
		q.stuck = true
		return
	}
	if q.retries == 0 {
		q.expired = true
	} else {
		q.retries--
	}
	q.wait(d)
}

// rnrForever is the retry count that means no end.
const rnrForever = 7

// rnrAgain waits for the time that a peer without a receive asks for. It says
// false if there are no attempts left.
func (q *qp) rnrAgain(timer uint8) bool {
	if q.attr.rnrRetry != rnrForever {
		if q.rnrRetries == 0 {
			return false
		}
		q.rnrRetries--
	}
	q.wait(rnrTimer(timer))
	return true
}

// wait has the request at the head tried again after a while.
func (q *qp) wait(d time.Duration) {
	var t *time.Timer
	t = q.d.m.after(d, func() {
		// Stop cannot keep a timer from firing that waits for the lock.
		if q.timer == t {
			q.timer, q.behind = nil, 0
			q.list()
		}
	})
	q.timer = t
}

// ackTimeout is how long to wait for an acknowledgement; 0 is for ever.
func (q *qp) ackTimeout() time.Duration {
	if q.attr.timeout == 0 {
		return 0
	}
	return 4096 * time.Nanosecond << q.attr.timeout
}

// rnrTimer is InfiniBand's table of RNR timer codes.
func rnrTimer(code uint8) time.Duration {
	hundredths := [32]int{
		65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
		4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
	}
	return time.Duration(hundredths[code&31]) * 10 * time.Microsecond
}
