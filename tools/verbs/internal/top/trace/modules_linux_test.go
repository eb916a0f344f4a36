package trace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A module that comes, or comes again, while the probes are attached has none of
// them in it, and levels say so.
func TestModulesSince(t *testing.T) {
	folder := t.TempDir()
	load := func(names ...string) {
		for _, name := range names {
			if err := os.Mkdir(filepath.Join(folder, name), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	load("ib_core", "ib_uverbs")
	attached := loadedModules(folder)
	all := []Level{
		{LevelPull, true, "kprobe"}, {LevelRing, false, noSoftRoCE}, {LevelErrors, true, "kprobe"}, {LevelEvents, false, "this kernel has no function"},
		{LevelSyscalls, false, notAsked}, {LevelEveryCQE, false, notAsked},
	}
	same := func() {
		t.Helper()
		for _, l := range all {
			if got := loadedModules(folder).since(attached, l); got != l {
				t.Errorf("%+v became %+v", l, got)
			}
		}
	}
	same()
	// The folder of before is kept elsewhere, so that the one of now is another.
	if err := os.Rename(filepath.Join(folder, "ib_uverbs"), filepath.Join(folder, "gone")); err != nil {
		t.Fatal(err)
	}
	same()
	load("ib_uverbs", "rdma_rxe")
	for i, want := range []string{
		"", "the module rdma_rxe was loaded after the probes", "the module ib_uverbs was loaded anew", "", "", "",
	} {
		got := loadedModules(folder).since(attached, all[i])
		if want == "" && got != all[i] || want != "" && (got.Live || !strings.HasPrefix(got.Why, want)) {
			t.Errorf("%+v became %+v", all[i], got)
		}
	}
	// Rings need offsets alone, and those were found.
	ring := Level{LevelRing, true, "read with the dump"}
	attached = loadedModules(folder)
	if err := os.Rename(filepath.Join(folder, "rdma_rxe"), filepath.Join(folder, "gone too")); err != nil {
		t.Fatal(err)
	}
	load("rdma_rxe")
	if got := loadedModules(folder).since(attached, ring); got != ring {
		t.Errorf("%+v became %+v", ring, got)
	}
}
