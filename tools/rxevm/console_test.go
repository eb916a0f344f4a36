package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestConsoleFaults(t *testing.T) {
	const fails, reported, fine = "fails", "is reported", "is fine"
	for _, tt := range []struct{ line, kvm, tcg string }{
		{"[    1.0] WARNING: CPU: 0 PID: 1 at drivers/infiniband/sw/rxe/rxe_pool.c:116 rxe_pool_cleanup+0x41/0x50", fails, fails},
		{"[    1.0] WARNING: possible circular locking dependency detected", fails, fails},
		{"[    1.0] BUG: kernel NULL pointer dereference, address: 0000000000000000", fails, fails},
		{"[    1.0] BUG: unable to handle page fault for address: ffff", fails, fails},
		{"[    1.0] kernel BUG at mm/slub.c:321!", fails, fails},
		{"[    1.0] Oops: 0002 [#1] PREEMPT SMP NOPTI", fails, fails},
		{"[    1.0] Internal error: Oops: 0000000096000004 [#1] SMP", fails, fails},
		{"[    1.0] Unable to handle kernel NULL pointer dereference at virtual address 0", fails, fails},
		{"[    1.0] general protection fault, probably for non-canonical address", fails, fails},
		{"[    1.0] Kernel panic - not syncing: Attempted to kill init!", fails, fails},
		{"[    1.0] restrack: BUG: RESTRACK detected leak of resources on rxe0", fails, fails},
		{"[    1.0] restrack: Userspace CQ object allocated by a task is not freed, leak", fails, fails},
		{"[    1.0] rdma_rxe: rxe0 pool mr destroyed with unfree'd elem", fails, fails},
		{"[    1.0] refcount_t: underflow; use-after-free.", fails, fails},
		{"[    1.0] list_del corruption. prev->next should be x", fails, fails},
		{"[    1.0] unregister_netdevice: waiting for dummy0 to become free. Usage count = 2", fails, fails},
		{"[    1.0] Call Trace:", fails, fails},
		{"[    1.0] Call trace:", fails, fails},
		{"[    1.0] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:", fails, reported},
		{"[    1.0] rcu: INFO: rcu_sched self-detected stall on CPU", fails, reported},
		{"[    1.0] watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [verbs:77]", fails, reported},
		{"[    1.0] INFO: task kworker/0:1:9 blocked for more than 120 seconds.", fails, reported},
		{"[    1.0] dummy0 speed is unknown, defaulting to 1000", fine, fine},
		{"[    1.0] Spectre V2 : WARNING: Unprivileged eBPF is enabled with eIBRS on, data leaks possible", fine, fine},
		{"[    1.0] DEBUG: nothing", fine, fine},
		{"[    1.0] rdma_rxe: loaded", fine, fine},
	} {
		for _, emulated := range []bool{false, true} {
			c := &console{emulated: emulated}
			fmt.Fprintf(c, "before\r\n%s\r\nafter\n", tt.line)
			got := fine
			if len(c.stalled()) > 0 {
				got = reported
			}
			if err := c.err(); err != nil {
				got = fails
				if !strings.Contains(err.Error(), tt.line) {
					t.Errorf("the error does not quote %q: %v", tt.line, err)
				}
			}
			want := tt.kvm
			if emulated {
				want = tt.tcg
			}
			if got != want {
				t.Errorf("emulated %v: %q %s, want %s", emulated, tt.line, got, want)
			}
		}
	}
}

func TestTraceOfAStallIsPartOfIt(t *testing.T) {
	c := &console{emulated: true}
	fmt.Fprint(c, "rcu: INFO: rcu_preempt self-detected stall on CPU\nrcu: \t0-....: (5250 ticks this GP)\nCall Trace:\n <IRQ>\n")
	if err := c.err(); err != nil {
		t.Errorf("a reported stall fails by its trace: %v", err)
	}
	fmt.Fprint(c, strings.Repeat("quiet\n", traceLines)+"Call Trace:\n")
	if c.err() == nil {
		t.Error("a trace long after a stall is taken for the stall's")
	}
}

func TestFaultDuringAStallStillFails(t *testing.T) {
	c := &console{emulated: true}
	fmt.Fprint(c, "watchdog: BUG: soft lockup - CPU#0 stuck for 22s!\nWARNING: CPU: 0 PID: 1 at x\n")
	if c.err() == nil {
		t.Error("a warning behind a stall got lost")
	}
}

func TestConsoleTakesLinesInPieces(t *testing.T) {
	c := &console{}
	for _, b := range []byte("one\r\nWARN") {
		fmt.Fprintf(c, "%c", b)
	}
	if c.err() != nil {
		t.Error("half a line was judged")
	}
	fmt.Fprint(c, "ING: CPU: 0\n")
	if c.err() == nil {
		t.Error("a line in two pieces was not recognised")
	}
	for i := range 3 * tailLines {
		fmt.Fprintf(c, "line %d\n", i)
	}
	if n := strings.Count(c.last(), "\n"); n != tailLines {
		t.Errorf("the tail has %d lines, want %d", n, tailLines)
	}
	if c.err() == nil {
		t.Error("the fault was forgotten with the tail")
	}
}
