package doctor

// Checks are all checks, causes before their consequences: a check may name in After those
// above it alone.
func Checks() []Check {
	return []Check{
		// The node: what is loaded, listed, and can be opened.
		checkSystem,
		checkModules,
		checkDevices,
		checkNamespace,
		checkInterface,
		checkFiles,
		// The process.
		checkMemlock,
		checkFork,
		checkCPU,
		checkRDMACgroup,
		// The network.
		checkPorts,
		checkGIDs,
		checkMTU,
		// The kernel's own faults, where the hardware is, and what is in use.
		checkABI,
		checkSoftRoCE,
		checkNUMA,
		checkVectors,
		checkModeration,
		checkLimits,
		checkCounters,
	}
}
