package main

import (
	"fmt"
	"io"
	"path"
	"sort"
	"strings"
)

// An image is the file tree of the guest, keyed by clean absolute path.
type image map[string]imageEntry

// An imageEntry is one file, folder or symbolic link; folders above a file need not be added.
type imageEntry struct {
	mode uint32 // type and permission bits as in struct stat
	data []byte // content of a file, target of a link
}

// Type bits of a mode, from struct stat.
const (
	modeDir  = 0o040000
	modeFile = 0o100000
	modeLink = 0o120000
)

// file adds a regular file; only the permission bits of perm count.
func (im image) file(name string, perm uint32, data []byte) {
	im[im.resolve(name)] = imageEntry{modeFile | perm&0o7777, data}
}

// dir adds a folder.
func (im image) dir(name string, perm uint32) {
	im[im.resolve(name)] = imageEntry{modeDir | perm&0o7777, nil}
}

// link adds a symbolic link.
func (im image) link(name, target string) {
	im[im.resolve(name)] = imageEntry{modeLink | 0o777, []byte(target)}
}

// resolve makes a name absolute and clean, and moves it behind the folders that a merged-usr system
// has as links, as the kernel would when unpacking.
func (im image) resolve(name string) string {
	name = path.Clean("/" + name)
	for _, top := range []string{"/bin/", "/sbin/", "/lib/", "/lib64/"} {
		if strings.HasPrefix(name, top) {
			return "/usr" + name
		}
	}
	return name
}

// writeTo writes the tree as a newc archive, which is what the kernel unpacks into its root.
// Parents come before children.
func (im image) writeTo(w io.Writer) error {
	all := make(image, len(im))
	for name, e := range im {
		all[name] = e
		for d := path.Dir(name); d != "/"; d = path.Dir(d) {
			if _, ok := im[d]; !ok {
				all[d] = imageEntry{modeDir | 0o755, nil}
			}
		}
	}
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	sort.Strings(names)
	for i, name := range names {
		if err := writeCpioEntry(w, i+1, strings.TrimPrefix(name, "/"), all[name]); err != nil {
			return err
		}
	}
	return writeCpioEntry(w, 0, "TRAILER!!!", imageEntry{})
}

// writeCpioEntry writes one newc record: thirteen eight-digit hexadecimal numbers behind the magic,
// the name, the content, each padded to four bytes.
func writeCpioEntry(w io.Writer, ino int, name string, e imageEntry) error {
	if int64(len(e.data)) >= 1<<32 {
		return fmt.Errorf("%s: %d bytes do not fit a newc archive", name, len(e.data))
	}
	links := 1
	if e.mode&modeDir != 0 && e.mode&modeFile == 0 {
		links = 2
	}
	h := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		ino, e.mode, 0, 0, links, 0, len(e.data), 0, 0, 0, 0, len(name)+1, 0, name)
	for _, part := range [][]byte{[]byte(h), pad4(len(h)), e.data, pad4(len(e.data))} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// pad4 returns the zeros that bring n to a multiple of four.
func pad4(n int) []byte { return make([]byte, -n&3) }
