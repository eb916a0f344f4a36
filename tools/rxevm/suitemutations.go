//go:build linux

package main

import (
	"context"
	"fmt"
	"strings"
)

// dailyMutations are the bugs of testdata/mutations that the test command puts into copies of
// the source: one of each kind that a driver for this device can have, with quick tests. All of them
// take tools/mutate several minutes.
const dailyMutations = "^(cq-owner-bit|cq-op-own-init|arm-sequence|doorbell-order|snd-units|payload-uidx|recv-terminator-lkey|resize-shift|sweep-owner|" +
	"cqe-tombstone-ignored|cq-index-24-bits|send-sge-zero|send-inline-wrap|send-imm-byte-order|send-invalidate-byte-order|errcqe-syndrome|cqe-error-vendor|" +
	"model-events-on-destroy|cq-closed-not-reread|requests-credit|cq-128-byte-half|rxe-producer-mask)$"

// mutations has tools/mutate see whether tests notice known bugs.
func (s *suite) mutations(ctx context.Context, where string) {
	s.step(where, "tests notice known bugs (tools/mutate)", func() (string, error) {
		out, err := s.goTool(ctx, nil, "run", "./tools/mutate", "-run", dailyMutations)
		if err != nil {
			return "", err
		}
		last := out[strings.LastIndexByte(strings.TrimSuffix(out, "\n"), '\n')+1:]
		if want := 1 + strings.Count(dailyMutations, "|"); last != fmt.Sprintf("%d passed, 0 failed\n", want) {
			return "", fmt.Errorf("of %d bugs:\n%s", want, out)
		}
		return strings.TrimSpace(last), nil
	})
}
