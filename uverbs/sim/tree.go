package sim

import (
	"io"
	"io/fs"
	"path"
	"strings"
	"time"
)

// node is a folder, a file or a link of a tree whose contents are asked for when they
// are read.
type node struct {
	name   string
	list   func() []node // of a folder, by name
	text   func() string // of a file
	target string        // of a link
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

// find finds a node. Links in the middle lead nowhere, for they lead out of the tree.
func (t tree) find(op, name string) (node, error) {
	if !fs.ValidPath(name) {
		return node{}, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	at := t.root
	if name == "." {
		return at, nil
	}
next:
	for part := range strings.SplitSeq(name, "/") {
		if at.list != nil {
			for _, n := range at.list() {
				if n.name == part {
					at = n
					continue next
				}
			}
		}
		return node{}, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	return at, nil
}

// Open implements [fs.FS].
func (t tree) Open(name string) (fs.File, error) {
	n, err := t.find("open", name)
	switch {
	case err != nil:
		return nil, err
	case n.list != nil:
		return &openFolder{info: n.info(), path: name, left: n.list()}, nil
	case n.text != nil:
		text := n.text()
		return &openFile{info{n.name, 0o444, len(text)}, strings.NewReader(text)}, nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// ReadLink implements [fs.ReadLinkFS].
func (t tree) ReadLink(name string) (string, error) {
	n, err := t.find("readlink", name)
	if err != nil {
		return "", err
	}
	if n.target == "" {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
	}
	return n.target, nil
}

// Lstat implements [fs.ReadLinkFS].
func (t tree) Lstat(name string) (fs.FileInfo, error) {
	n, err := t.find("lstat", name)
	if err != nil {
		return nil, err
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

func (i info) Name() string       { return path.Base(i.name) }
func (i info) Size() int64        { return int64(i.size) }
func (i info) Mode() fs.FileMode  { return i.mode }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool        { return i.mode.IsDir() }
func (i info) Sys() any           { return nil }

type openFile struct {
	info
	*strings.Reader
}

func (f *openFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *openFile) Size() int64                { return f.info.Size() }
func (f *openFile) Close() error               { return nil }

type openFolder struct {
	info
	path string
	left []node
}

func (f *openFolder) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *openFolder) Close() error               { return nil }

func (f *openFolder) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: f.path, Err: fs.ErrInvalid}
}

// ReadDir implements [fs.ReadDirFile].
func (f *openFolder) ReadDir(n int) ([]fs.DirEntry, error) {
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
