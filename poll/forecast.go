package poll

// forecast says of a queue that is empty how long it pays to spin for the next
// completion. All times are nanoseconds.
//
// Who spins for as long as a sleep would have cost, and then sleeps, pays at most twice
// what somebody who knew the future would pay. Where completions have lately been
// farther apart than that, spinning first only adds to the price, and where they come
// close together it saves all of it.
type forecast struct {
	most  int64 // never spin longer
	gap   int64 // expected time until the next completion
	price int64 // of sleeping and being woken, up to most

	// Who sleeps does not see when the completion came, only when it was woken,
	// which on some machines is so much later that all gaps look long. So after some
	// sleeps that were short it tries a spin, and after more and more of them if
	// that found nothing.
	naps, patience int64
}

const (
	// leastPrice is less than any sleep in the kernel costs, which says nothing
	// of one that was over before it began.
	leastPrice = 5_000
	// farGaps is the multiple of the spin above which one gap is as good as
	// another, so that a night without traffic is forgotten after some ten
	// completions.
	farGaps = 4
	// longNap is the multiple of the spin above which a sleep was one that no slow
	// wake-up explains.
	longNap = 50
	// leastPatience and mostPatience are how many naps come before a try.
	leastPatience, mostPatience = 8, 512
)

func newForecast(most int64) forecast {
	return forecast{most: most, price: most, patience: leastPatience}
}

// expects says whether the next completion is near enough to spin for.
func (f *forecast) expects() bool { return f.gap < f.price }

// budget is how long to spin, 0 for not at all.
func (f *forecast) budget() int64 {
	if f.expects() || f.naps >= f.patience {
		return f.price
	}
	return 0
}

// came tells that the completion came after so much spinning, and nothing else.
func (f *forecast) came(spun int64) {
	if !f.expects() && spun < f.price {
		f.gap = spun // a try: so the naps were all that was long
	}
	f.naps, f.patience = 0, leastPatience
	f.expect(spun)
}

// slept tells that it came after a spin, which may have taken no time, and a sleep, of
// which the waking is a part that nobody can measure. The short ones among the sleeps
// say most about it: the price follows the tenth shortest in a hundred.
func (f *forecast) slept(spun, slept int64) {
	switch {
	case spun > 0 && !f.expects():
		f.naps, f.patience = 0, min(2*f.patience, mostPatience)
	case slept < longNap*f.most:
		f.naps++
	default:
		f.naps = 0
	}
	// What one spin did not see the next one will hardly see: it counts twice.
	f.expect(2*min(spun, f.most) + max(slept-f.price, 0))
	switch slept = min(max(slept, leastPrice), f.most); {
	case slept < f.price:
		f.price -= (f.price - slept + 7) / 8
	default:
		f.price += (slept - f.price) / 64
	}
}

// expect takes one more gap into the mean.
func (f *forecast) expect(gap int64) {
	f.gap += (min(gap, farGaps*f.most) - f.gap) / 8
}
