package check

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Nobody has committed what a compiler made: go build leaves it where it was called.
func TestNoBinaries(t *testing.T) {
	cmd := exec.Command("git", "ls-files", "-z")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Skip("declared skip: git does not list the files here")
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		f, err := os.Open(filepath.Join(root(t), filepath.FromSlash(name)))
		if err != nil {
			continue // removed, and not yet committed
		}
		var head [4]byte
		n, _ := io.ReadFull(f, head[:])
		f.Close()
		// ELF, PE, Mach-O of 64 bits, an archive.
		for _, magic := range []string{"\x7fELF", "MZ", "\xcf\xfa\xed\xfe", "!<ar"} {
			if bytes.HasPrefix(head[:n], []byte(magic)) {
				t.Errorf("%s is a binary: git rm it", name)
			}
		}
	}
}
