package uverbs

import "time"

// RetryForever, as a number of retries, never gives up: a request to a peer
// that is gone then never ends. (The wire's number for it is 7.)
const RetryForever = 7

// ackTimeoutUnit is the unit of the acknowledge timeout: 4.096 us times a power
// of two (InfiniBand specification, C9-140).
const ackTimeoutUnit = 4096 * time.Nanosecond

// AckTimeoutForever waits for an acknowledgement without limit.
const AckTimeoutForever time.Duration = -1

// AttrAckTimeout is how long to wait for an acknowledgement before a retry,
// rounded up to the next of 4.096 us times 2, 4, 8 up to 2^31; or
// AckTimeoutForever.
func AttrAckTimeout(d time.Duration) QPAttr {
	code := uint8(0)
	if d != AckTimeoutForever {
		if d <= 0 {
			return QPAttr{err: invalid("modify QP: acknowledge timeout %v: must be positive, or AckTimeoutForever", d)}
		}
		for code = 1; ackTimeoutUnit<<code < d; code++ {
			if code == 31 {
				return QPAttr{err: invalid("modify QP: acknowledge timeout %v: at most %v", d, ackTimeoutUnit<<31)}
			}
		}
	}
	return QPAttr{mask: maskTimeout, value: uint32(code)}
}

// AttrRetries is how often to repeat a request that is not acknowledged, 0 to
// 6. 7 is taken literally on InfiniBand; soft-RoCE repeats for ever.
func AttrRetries(n int) QPAttr {
	if n < 0 {
		return QPAttr{err: invalid("modify QP: %d retries: 0 to 7", n)}
	}
	return bounded("retries", maskRetryCount, uint64(n), 7)
}

// AttrRNRRetries is how often to repeat a request for which the peer had no
// receive posted, 0 to 6, or RetryForever.
func AttrRNRRetries(n int) QPAttr {
	if n < 0 {
		return QPAttr{err: invalid("modify QP: %d RNR retries: 0 to 6, or RetryForever", n)}
	}
	return bounded("RNR retries", maskRNRRetry, uint64(n), 7)
}

// rnrTimers are the waits that the wire has codes for, in units of 10 us, by
// code (InfiniBand specification, table 46). Code 0 is the longest.
var rnrTimers = [32]int{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

// AttrMinRNRTimer is how long a peer has to wait that found no receive posted
// here, rounded up to the next wait that the wire has a code for, from 10 us to
// 655.36 ms.
func AttrMinRNRTimer(d time.Duration) QPAttr {
	best, found := uint8(0), false
	for code, units := range rnrTimers {
		if have := time.Duration(units) * 10 * time.Microsecond; have >= d && (!found || have < time.Duration(rnrTimers[best])*10*time.Microsecond) {
			best, found = uint8(code), true
		}
	}
	if d <= 0 || !found {
		return QPAttr{err: invalid("modify QP: RNR timer %v: 10us to 655.36ms", d)}
	}
	return QPAttr{mask: maskMinRNRTimer, value: uint32(best)}
}
