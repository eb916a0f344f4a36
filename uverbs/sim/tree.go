package sim

import (
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// node is a folder, a file or a link of a tree whose contents are asked for when they
// are read.
type node struct {
	name   string
	list   func() []node // of a folder, by name
	text   func() string // of a file
	target string        // of a link, from its folder
}

// folder is a folder with always the same nodes.
func folder(name string, nodes ...node) node {
	return node{name: name, list: func() []node { return nodes }}
}

// attribute is a file of one line.
func attribute(name string, line func() string) node {
	return node{name: name, text: func() string { return line() + "\n" }}
}

// fixed is a file of one line that stays as it is.
func fixed(name, line string) node { return attribute(name, func() string { return line }) }

// tree is a read-only file system with a node at its root.
type tree struct{ root node }

// find finds a node. Links on the way are followed, and one at its end if wanted: those of
// a tree stay inside of it and make no rings.
func (t tree) find(name string, follow bool) (node, error) {
	if !fs.ValidPath(name) {
		return node{}, fs.ErrInvalid
	}
	at := t.root
	if name == "." {
		return at, nil
	}
	parts := strings.Split(name, "/")
	for i, part := range parts {
		var below []node
		if at.list != nil {
			below = at.list()
		}
		n := slices.IndexFunc(below, func(n node) bool { return n.name == part })
		if n < 0 {
			return node{}, fs.ErrNotExist
		}
		if at = below[n]; at.target != "" && (follow || i < len(parts)-1) {
			return t.find(path.Join(path.Join(parts[:i]...), at.target, path.Join(parts[i+1:]...)), follow)
		}
	}
	return at, nil
}

// Open implements [fs.FS].
func (t tree) Open(name string) (fs.File, error) {
	n, err := t.find(name, true)
	switch {
	case err != nil:
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	case n.list != nil:
		return &listing{info: n.info(), path: name, left: n.list()}, nil
	}
	text := n.text()
	return &textFile{info{n.name, 0o444, len(text)}, strings.NewReader(text)}, nil
}

// ReadLink implements [fs.ReadLinkFS].
func (t tree) ReadLink(name string) (string, error) {
	n, err := t.find(name, false)
	if err == nil && n.target == "" {
		err = fs.ErrInvalid
	}
	if err != nil {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: err}
	}
	return n.target, nil
}

// Lstat implements [fs.ReadLinkFS].
func (t tree) Lstat(name string) (fs.FileInfo, error) {
	n, err := t.find(name, false)
	if err != nil {
		return nil, &fs.PathError{Op: "lstat", Path: name, Err: err}
	}
	return n.info(), nil
}

func (n node) info() info {
	switch {
	case n.list != nil:
		return info{n.name, fs.ModeDir | 0o555, 0}
	case n.text != nil:
		return info{n.name, 0o444, len(n.text())}
	}
	return info{n.name, fs.ModeSymlink | 0o777, len(n.target)}
}

// info says what a node is.
type info struct {
	name string
	mode fs.FileMode
	size int
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return int64(i.size) }
func (i info) Mode() fs.FileMode  { return i.mode }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool        { return i.mode.IsDir() }
func (i info) Sys() any           { return nil }

type textFile struct {
	info
	*strings.Reader
}

func (f *textFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *textFile) Size() int64                { return f.info.Size() }
func (f *textFile) Close() error               { return nil }

type listing struct {
	info
	path string
	left []node
}

func (f *listing) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *listing) Close() error               { return nil }

func (f *listing) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: f.path, Err: fs.ErrInvalid}
}

// ReadDir implements [fs.ReadDirFile].
func (f *listing) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 || n > len(f.left) {
		if n > 0 && len(f.left) == 0 {
			return nil, io.EOF
		}
		n = len(f.left)
	}
	entries := make([]fs.DirEntry, n)
	for i, node := range f.left[:n] {
		entries[i] = fs.FileInfoToDirEntry(node.info())
	}
	f.left = f.left[n:]
	return entries, nil
}
