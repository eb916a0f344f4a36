package selftest

import (
	"context"
	"time"

	"github.com/goverbs/goverbs/cq"
	"github.com/goverbs/goverbs/uverbs"
)

// pastCounters is more than what the counters of ConnectX's requests, which have 16 bits,
// go round in.
const pastCounters = 70_000

// ringTests wrap rings, with numbered messages: none is lost, doubled or overtaken.
func ringTests() []test {
	const limit = 3 * time.Minute
	return []test{
		{group: "rings", name: "send queue goes round", limit: limit, run: func(ctx context.Context, t *bench) error {
			a, b := usual(uverbs.RC), usual(uverbs.RC)
			a.SendDepth, b.RecvDepth = 8, 64
			return stream(ctx, t, a, b, Stream{Messages: t.rounds(pastCounters, 2000), Bytes: 64, Credit: 32})
		}},
		{group: "rings", name: "requests of all lengths", limit: limit, run: func(ctx context.Context, t *bench) error {
			a, b := usual(uverbs.RC), usual(uverbs.RC)
			a.SendDepth, b.RecvDepth, a.Inline = 16, 64, 220
			return stream(ctx, t, a, b, Stream{Messages: t.rounds(pastCounters/2, 2000), Bytes: 220, Inline: true, Vary: true, Quiet: 5, Credit: 32})
		}},
		{group: "rings", name: "receive queue goes round", limit: limit, run: func(ctx context.Context, t *bench) error {
			a, b := usual(uverbs.RC), usual(uverbs.RC)
			a.SendDepth, b.RecvDepth = 64, 8
			return stream(ctx, t, a, b, Stream{Messages: t.rounds(pastCounters, 2000), Bytes: 64, Credit: 8, Ops: []cq.Opcode{cq.OpSend, cq.OpSendImm}})
		}},
		{group: "rings", name: "completion queue goes round", limit: limit, run: func(ctx context.Context, t *bench) error {
			a, b := usual(uverbs.RC), usual(uverbs.RC)
			a.SendDepth, a.RecvDepth, b.SendDepth, b.RecvDepth = 4, 3, 4, 3
			return stream(ctx, t, a, b, Stream{Messages: t.rounds(pastCounters/2, 2000), Bytes: 64, Credit: 3})
		}},
		{group: "rings", name: "UC goes round", limit: limit, run: func(ctx context.Context, t *bench) error {
			spec := usual(uverbs.UC)
			return stream(ctx, t, spec, spec, Stream{Messages: t.rounds(20000, 1000), Bytes: 256, Vary: true, Credit: 8})
		}},
		{group: "rings", name: "long messages", limit: limit, run: func(ctx context.Context, t *bench) error {
			spec := usual(uverbs.RC)
			return stream(ctx, t, spec, spec, Stream{Messages: t.rounds(1000, 50), Bytes: 30000, Vary: true, Credit: 8})
		}},
	}
}
