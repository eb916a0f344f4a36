//go:build linux

package trace

import "github.com/cilium/ebpf/asm"

// A group is the probes of a level: all of them or none.
type group struct {
	level  string
	module string // whose functions these are
	// hooks are the ways to attach, the preferred one first.
	//
	// The pull and the CQ errors prefer kprobes: they are attached in a
	// fraction of the time, need no type information of modules, leave modules
	// free to be removed, and cost no program anything that matters. On paths of
	// data fentry is preferred: it costs half as much, and its programs at the
	// end of a function miss nobody. A kretprobe has twenty places or so for
	// threads inside the function, and one that waits for an event there stays
	// long.
	hooks []hook
	// functions are checked to point to these structs with their arguments.
	functions map[string][]string
	tables    []table
	// probes are in the order of attaching: what reads comes before what
	// writes, so that nothing is measured from a time before the start.
	probes func(h hook) []probe
}

// A probe is one program.
type probe struct {
	name     string // of the program; the kernel has room for 15 bytes
	function string
	atEnd    bool
	write    func(*emitter) asm.Instructions
}

var (
	cheap  = []hook{kprobe, fentry}
	direct = []hook{fentry, kprobe}
)

func pullGroup(o *cqOffsets, process uint32, ring *ringOffsets) group {
	return group{
		level: LevelPull, module: "ib_core", hooks: cheap,
		functions: map[string][]string{"fill_res_cq_entry": {"sk_buff", "", "rdma_restrack_entry", ""}},
		tables:    []table{snapshots},
		probes: func(hook) []probe {
			return []probe{{"verbs_pull", "fill_res_cq_entry", false, func(e *emitter) asm.Instructions {
				return pull(e, process, o, ring)
			}}}
		},
	}
}

func errorsGroup(o *cqOffsets) group {
	return group{
		level: LevelErrors, module: "ib_uverbs", hooks: cheap,
		functions: map[string][]string{"ib_uverbs_cq_event_handler": {"ib_event", ""}},
		tables:    []table{failures},
		probes: func(hook) []probe {
			return []probe{{"verbs_cq_error", "ib_uverbs_cq_event_handler", false, func(e *emitter) asm.Instructions {
				return cqError(e, o)
			}}}
		},
	}
}

func eventsGroup(o *cqOffsets) group {
	const made, read = "ib_uverbs_comp_handler", "ib_uverbs_comp_event_read"
	return group{
		level: LevelEvents, module: "ib_uverbs", hooks: direct,
		functions: map[string][]string{made: {"ib_cq", ""}, read: {"file", "", "", ""}},
		tables:    []table{events, stamps, readers},
		probes: func(h hook) []probe {
			all := []probe{{"verbs_read", read, true, func(e *emitter) asm.Instructions { return readReturns(e, o) }}}
			if h == kprobe {
				all = append(all, probe{"verbs_read_in", read, false, readEnters})
			}
			return append(all, probe{"verbs_event", made, false, func(e *emitter) asm.Instructions { return eventMade(e, o) }})
		},
	}
}

func syscallsGroup() group {
	const ioctl, write = "ib_uverbs_ioctl", "ib_uverbs_write"
	returns := func(args int) func(*emitter) asm.Instructions {
		return func(e *emitter) asm.Instructions { return callReturns(e, args) }
	}
	return group{
		level: LevelSyscalls, module: "ib_uverbs", hooks: direct,
		functions: map[string][]string{ioctl: {"file", "", ""}, write: {"file", "", "", ""}},
		tables:    []table{calls, running},
		probes: func(hook) []probe {
			return []probe{
				{"verbs_ioctl", ioctl, true, returns(3)},
				{"verbs_write", write, true, returns(4)},
				{"verbs_ioctl_in", ioctl, false, ioctlEnters},
				{"verbs_write_in", write, false, writeEnters},
			}
		},
	}
}

func everyCQEGroup(o *cqOffsets, ring *ringOffsets) group {
	return group{
		level: LevelEveryCQE, module: "rdma_rxe", hooks: direct,
		functions: map[string][]string{"rxe_cq_post": {"rxe_cq", "rxe_cqe", ""}},
		tables:    []table{posts},
		probes: func(hook) []probe {
			if ring == nil {
				return nil
			}
			return []probe{{"verbs_cqe", "rxe_cq_post", false, func(e *emitter) asm.Instructions {
				return rxePost(e, o, ring)
			}}}
		},
	}
}
