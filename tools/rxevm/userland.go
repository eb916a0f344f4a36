//go:build linux

package main

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// userlandPackages are what -with rdma-core adds.
var userlandPackages = []string{"busybox", "ibverbs-utils", "ibverbs-providers", "rdmacm-utils", "perftest", "iproute2"}

// userlandPrograms are the patterns of the files that go into the guest out of userlandPackages.
// Libraries follow by themselves.
var userlandPrograms = []string{"usr/bin/busybox", "usr/bin/ibv_*", "usr/bin/ib_*_bw", "usr/bin/ib_*_lat", "usr/bin/raw_ethernet_*",
	"usr/bin/rping", "usr/bin/ucmatose", "usr/bin/ip", "usr/sbin/ip", "usr/bin/rdma", "usr/sbin/rdma", "usr/lib/*/libibverbs/librxe-*.so", "etc/libibverbs.d/rxe.driver"}

// busyboxCommands are the names under which the guest has busybox.
var busyboxCommands = strings.Fields("sh ash cat cmp cp cut date dd df diff dmesg du echo env expr false find free grep head hexdump hostname id kill killall ln ls mkdir mknod mktemp mount mv nc " +
	"nproc od pgrep pidof ping ps printf pwd readlink rm rmdir sed seq setsid sleep sort stat stty sync sysctl tail tar tee test time timeout top touch tr true umount uname uniq uptime usleep vi wc which xargs yes [")

// userlandSuite is the Debian release that a guest's programs come from. One release serves all
// amd64 kernels: the kernel's interface is stable, and its index is fetched for the 6.1 kernel
// anyway.
func userlandSuite(arch string) string {
	if arch == "amd64" {
		return "bookworm"
	}
	return "trixie"
}

// userland returns the unpacked folder of rdma-core and what goes with it.
func (h *host) userland(ctx context.Context, arch string) (string, error) {
	return h.unpacked(ctx, "userland", userlandSuite(arch), arch, "rdma-core and its company for the guest ("+arch+")", userlandPackages)
}

// unpacked returns the folder of the cache in which packages of a release are unpacked, with all
// that they depend on. why says what they are.
func (h *host) unpacked(ctx context.Context, kind, release, arch, why string, packages []string) (string, error) {
	unlock, err := h.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	where := filepath.Join(kind, release+"-"+arch)
	// Which packages were asked for stands in the folder: another list is another folder.
	list := strings.Join(packages, " ") + "\n"
	if b, err := os.ReadFile(filepath.Join(h.path(where), packageList)); err == nil && string(b) == list && !h.refresh {
		return h.path(where), nil
	}
	a, err := h.openApt(ctx, arch, release)
	if err != nil {
		return "", err
	}
	debs, err := a.closure(ctx, packages...)
	if err != nil {
		return "", err
	}
	err = h.build(where, func(dir string) error {
		if err := a.unpackInto(ctx, dir, why, debs); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, packageList), []byte(list), 0o644)
	})
	return h.path(where), err
}

// packageList is the file of an unpacked folder that names the packages.
const packageList = ".packages"

// addUserland packs the programs below an unpacked root, their libraries and loader, into an image.
func addUserland(im image, root string) error {
	libs, err := libraryDirs(root)
	if err != nil {
		return err
	}
	var queue []string
	for _, pattern := range userlandPrograms {
		m, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return err
		}
		queue = append(queue, m...)
	}
	if len(queue) == 0 {
		return fmt.Errorf("no programs below %s: remove that folder to fetch it again", root)
	}
	done := map[string]bool{}
	for len(queue) > 0 {
		path := queue[0]
		queue = queue[1:]
		if done[path] {
			continue
		}
		done[path] = true
		data, err := os.ReadFile(path) // Follows links: libraries land under the name by which programs ask for them.
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		im.file(rel, 0o755, data)
		if !bytes.HasPrefix(data, []byte(elf.ELFMAG)) {
			continue
		}
		needs, err := elfNeeds(data)
		if err != nil {
			return fmt.Errorf("%s: %w", rel, err)
		}
		for _, n := range needs {
			found := ""
			if filepath.IsAbs(n) { // The loader is named by its path.
				found = filepath.Join(root, image(nil).resolve(n))
			} else if i := slices.IndexFunc(libs, func(d string) bool { _, err := os.Stat(filepath.Join(d, n)); return err == nil }); i >= 0 {
				found = filepath.Join(libs[i], n)
			}
			if _, err := os.Stat(found); err != nil {
				return fmt.Errorf("%s needs %s, which no unpacked package has", rel, n)
			}
			queue = append(queue, found)
		}
	}
	for _, c := range busyboxCommands {
		im.link("/usr/bin/"+c, "busybox")
	}
	im.file("/etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"))
	im.file("/etc/group", 0o644, []byte("root:x:0:\nnogroup:x:65534:\n"))
	return nil
}

// elfNeeds lists the libraries of an ELF file, and its loader.
func elfNeeds(data []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	needs, err := f.ImportedLibraries()
	if err != nil {
		return nil, err
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			b, err := io.ReadAll(p.Open())
			if err != nil {
				return nil, err
			}
			needs = append(needs, strings.TrimRight(string(b), "\x00"))
		}
	}
	return needs, nil
}

// addTree packs a host file, or a folder with all below it, into an image under another path.
func addTree(im image, src, dst string) error {
	return filepath.WalkDir(src, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, path)
		if err != nil {
			return err
		}
		to := filepath.Join(dst, rel)
		st, err := os.Stat(path)
		if err != nil {
			return err
		}
		switch {
		case d.Type()&fs.ModeSymlink != 0 && path != src:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			im.link(to, target)
		case st.IsDir():
			im.dir(to, uint32(st.Mode().Perm()))
		case st.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			im.file(to, uint32(st.Mode().Perm()), data)
		default:
			return fmt.Errorf("%s is neither a file nor a folder nor a link: it cannot be copied into the guest", path)
		}
		return nil
	})
}
