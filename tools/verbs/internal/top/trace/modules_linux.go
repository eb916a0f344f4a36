package trace

import (
	"fmt"
	"os"
	"path/filepath"
)

// moduleFolder is where the kernel shows the modules that are loaded, each by a
// folder that is made with it.
const moduleFolder = "/sys/module"

// modules are those that were loaded at a time, of those that probes are in.
type modules map[string]os.FileInfo

// loadedModules looks which are loaded.
func loadedModules(folder string) modules {
	m := modules{}
	for _, name := range probed {
		if i, err := os.Stat(filepath.Join(folder, name)); err == nil {
			m[name] = i
		}
	}
	return m
}

// probed are the modules that levels are about.
var probed = map[string]string{
	LevelPull: "ib_core", LevelRing: "rdma_rxe", LevelErrors: "ib_uverbs", LevelEvents: "ib_uverbs", LevelSyscalls: "ib_uverbs", LevelEveryCQE: "rdma_rxe",
}

// since says what a module that was loaded since the probes were attached makes of
// a level: those in the module of before went with it, and nobody has put any into
// the one of now.
func (m modules) since(attached modules, l Level) Level {
	name := probed[l.Name]
	now, then := m[name], attached[name]
	switch {
	case now == nil || l.Why == notAsked:
	case then == nil && !l.Live:
		l.Why = fmt.Sprintf("the module %s was loaded after the probes were attached: start this anew", name)
	case then != nil && l.Live && l.Name != LevelRing && !os.SameFile(now, then):
		// Rings are read by the probe in ib_core.
		l.Live, l.Why = false, fmt.Sprintf("the module %s was loaded anew after the probes were attached: start this anew", name)
	}
	return l
}
