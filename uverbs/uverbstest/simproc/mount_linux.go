//go:build amd64 || arm64

package simproc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// mount puts the model's devices into the mount namespace of this process, which is its own.
func mount(j *job) error {
	// Nothing is to go back to where the namespace was copied from.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := cover(classFolder, func(name string) bool { return strings.HasPrefix(name, filepath.Base(classPrefix)) }); err != nil {
		return err
	}
	if err := cover(filepath.Dir(devPrefix), func(name string) bool { return name == filepath.Base(devPrefix) }); err != nil {
		return err
	}
	if err := write(j.Tree, classFolder); err != nil {
		return err
	}
	if err := os.Mkdir(devPrefix, 0o755); err != nil {
		return err
	}
	for n := range j.Devices {
		file := filepath.Join(devPrefix, uverbsName(n))
		if err := bind("/dev/zero", file, false); err != nil {
			return err
		}
	}
	return nil
}

// cover hides a folder below one in memory that has the same entries, but for some. No
// other folder is needed, which would have to be removed.
func cover(folder string, without func(string) bool) error {
	fd, err := unix.Open(folder, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: folder, Err: err}
	}
	defer unix.Close(fd)
	old := fmt.Sprintf("/proc/self/fd/%d", fd)
	entries, err := os.ReadDir(old + "/")
	if err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", folder, "tmpfs", unix.MS_NOSUID, "mode=755,size=4m"); err != nil {
		return fmt.Errorf("mounting a tmpfs at %s: %w", folder, err)
	}
	for _, e := range entries {
		if without(e.Name()) {
			continue
		}
		from, to := filepath.Join(old, e.Name()), filepath.Join(folder, e.Name())
		if e.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(from)
			if err == nil {
				err = os.Symlink(target, to)
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			continue
		}
		if err := bind(from, to, e.IsDir()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// bind makes a file or folder be at a second place, where nothing is.
func bind(from, to string, folder bool) error {
	var err error
	if folder {
		err = os.Mkdir(to, 0o755)
	} else {
		err = os.WriteFile(to, nil, 0o600)
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mounting %s at %s: %w", filepath.Base(from), to, err)
	}
	return nil
}
