package poll

import (
	"golang.org/x/sys/unix"
)

// allowedCPUs returns the processors that the process may use: those of the affinity of
// its main thread, which the kernel keeps within the cpuset of the cgroup.
func allowedCPUs() ([]int, error) {
	set := unix.NewCPUSet(maxCPUs)
	if err := unix.SchedGetaffinityDynamic(unix.Getpid(), set); err != nil {
		return nil, err
	}
	var cpus []int
	for c := range maxCPUs {
		if set.IsSet(c) {
			cpus = append(cpus, c)
		}
	}
	return cpus, nil
}

// bindThread binds the calling thread.
func bindThread(cpus []int) error {
	set := unix.NewCPUSet(maxCPUs)
	for _, c := range cpus {
		set.Set(c)
	}
	return unix.SchedSetaffinityDynamic(0, set)
}

// onMainThread says whether the calling thread is the one that the process began with.
func onMainThread() bool { return unix.Gettid() == unix.Getpid() }
