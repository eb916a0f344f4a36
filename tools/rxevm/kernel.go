//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// kernelSuites says where Debian has a kernel series: alternatives in order of preference. Only
// series are named here; which package that is today is asked of apt.
var kernelSuites = map[string][][]string{
	"5.10": {{"bullseye", "bullseye-security"}, {"bullseye"}},
	"6.1":  {{"bookworm", "bookworm-security"}, {"bookworm"}},
	"6.12": {{"trixie", "trixie-security"}, {"trixie"}, {"bookworm-backports"}},
}

// kernelSeries lists the kernels that can be asked for, oldest first.
func kernelSeries() []string { return []string{"5.10", "6.1", "6.12"} }

// kernelPackages names for people what rxevm fetches.
func kernelPackages() []string {
	return []string{"linux-image-amd64 of bullseye (5.10), bookworm (6.1) and trixie (6.12)", "linux-image-arm64 of trixie (6.12)",
		strings.Join(userlandPackages, " ")}
}

// A kernelDir is an unpacked kernel in the cache.
type kernelDir struct {
	dir string
	// release is the full version, as uname -r says it.
	release string
}

// vmlinuz is the path of the boot image.
func (k kernelDir) vmlinuz() string { return filepath.Join(k.dir, "vmlinuz") }

// kernel returns a kernel of a series, fetched if the cache has none.
func (h *host) kernel(ctx context.Context, series, arch string) (kernelDir, error) {
	alternatives, ok := kernelSuites[series]
	if !ok {
		return kernelDir{}, exitError{exitUsage, fmt.Errorf("kernel %q: there are %s", series, strings.Join(kernelSeries(), ", "))}
	}
	unlock, err := h.lock(ctx)
	if err != nil {
		return kernelDir{}, err
	}
	defer unlock()
	name := filepath.Join("kernel", series+"-"+arch)
	if !h.refresh {
		if k, err := openKernel(h.path(name)); err == nil {
			return k, nil
		}
	}
	var errs []error
	for _, suites := range alternatives {
		err := h.fetchKernel(ctx, name, series, arch, suites)
		if err == nil {
			return openKernel(h.path(name))
		}
		if ctx.Err() != nil {
			return kernelDir{}, context.Cause(ctx)
		}
		if e := (exitError{}); errors.As(err, &e) {
			return kernelDir{}, err
		}
		errs = append(errs, err)
	}
	return kernelDir{}, exitError{exitMissing, fmt.Errorf("no kernel %s for %s: %w", series, arch, errors.Join(errs...))}
}

// openKernel opens an unpacked kernel.
func openKernel(dir string) (kernelDir, error) {
	b, err := os.ReadFile(filepath.Join(dir, "release"))
	if err != nil {
		return kernelDir{}, err
	}
	return kernelDir{dir: dir, release: string(b)}, nil
}

// fetchKernel fetches the newest kernel of a series that some suites have.
func (h *host) fetchKernel(ctx context.Context, name, series, arch string, suites []string) error {
	a, err := h.openApt(ctx, arch, suites...)
	if err != nil {
		return err
	}
	out, err := a.run(ctx, a.dir, "apt-cache", "depends", "linux-image-"+arch)
	if err != nil {
		return err
	}
	pkg := ""
	for line := range strings.Lines(out) {
		if d, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: "); ok && strings.HasPrefix(d, "linux-image-"+series+".") {
			pkg = d
		}
	}
	if pkg == "" {
		return fmt.Errorf("linux-image-%s of %s depends on no linux-image-%s.*: apt says %q", arch, strings.Join(suites, ", "), series, strings.TrimSpace(out))
	}
	debs, err := a.single(ctx, pkg)
	if err != nil {
		return err
	}
	xz, err := h.tool(ctx, "xz", "xz-utils")
	if err != nil {
		return err
	}
	return h.build(name, func(dir string) error {
		files, err := a.download(ctx, dir, "Linux "+series+" for "+arch+" ("+pkg+")", debs)
		if err != nil {
			return err
		}
		if err := unpackKernel(ctx, dir, files[0]); err != nil {
			return err
		}
		if err := expandModules(ctx, xz, filepath.Join(dir, "modules")); err != nil {
			return err
		}
		return os.Remove(files[0])
	})
}

// keptModules are the parts of a kernel package that can matter to RDMA; the whole would be half a
// gigabyte.
var keptModules = []string{"arch/", "crypto/", "lib/", "net/", "fs/configfs/", "drivers/infiniband/", "drivers/virtio/", "drivers/char/",
	"drivers/net/dummy.", "drivers/net/veth.", "drivers/net/ethernet/mellanox/", "drivers/net/vxlan", "drivers/net/bonding/", "drivers/pci/", "drivers/ptp/",
	"drivers/target/iscsi/", "drivers/dca/", "drivers/i2c/", "drivers/vfio/", "virt/"}

// unpackKernel takes the boot image, the configuration and the kept modules out of a kernel
// package. Modules land flat in one folder: their names are unique.
func unpackKernel(ctx context.Context, dir, deb string) error {
	if err := os.Mkdir(filepath.Join(dir, "modules"), 0o755); err != nil {
		return err
	}
	release := ""
	err := unpackDeb(ctx, deb, func(name string, th *tar.Header, r io.Reader) error {
		name = strings.TrimPrefix(name, "/usr")
		to := ""
		if v, ok := strings.CutPrefix(name, "/boot/vmlinuz-"); ok {
			release, to = v, "vmlinuz"
		} else if strings.HasPrefix(name, "/boot/config-") {
			to = "config"
		} else if _, mod, ok := strings.Cut(name, "/kernel/"); ok && strings.HasPrefix(name, "/lib/modules/") {
			for _, keep := range keptModules {
				if strings.HasPrefix(mod, keep) {
					to = filepath.Join("modules", strings.ReplaceAll(filepath.Base(mod), "-", "_"))
				}
			}
		} else if strings.HasPrefix(name, "/lib/modules/") && filepath.Base(name) == "modules.builtin" {
			to = "modules.builtin"
		}
		if to == "" {
			return nil
		}
		f, err := os.Create(filepath.Join(dir, to))
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		return errors.Join(err, f.Close())
	})
	if err != nil {
		return err
	}
	if release == "" {
		return fmt.Errorf("%s has no boot image", filepath.Base(deb))
	}
	return os.WriteFile(filepath.Join(dir, "release"), []byte(release), 0o644)
}

// expandModules decompresses the modules in a folder, all in one go.
func expandModules(ctx context.Context, xz hostTool, dir string) error {
	packed, err := filepath.Glob(filepath.Join(dir, "*.ko.xz"))
	if err != nil || len(packed) == 0 {
		return err
	}
	cmd := xz.command(ctx, append([]string{"-d", "-T0", "--"}, packed...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := runChild(cmd); err != nil {
		return fmt.Errorf("xz: %w: %s", err, strings.TrimSpace(errs.String()))
	}
	return nil
}

// A moduleSet knows the modules of one kernel.
type moduleSet struct {
	// depends returns the modules that one needs, or fs.ErrNotExist.
	depends func(name string) ([]string, error)
	// builtin are the modules that are part of the boot image.
	builtin map[string]bool
}

// order returns the named modules and what they need, each behind what it needs. A built-in module
// needs no loading.
func (m moduleSet) order(names ...string) ([]string, error) {
	var all []string
	state := map[string]int{} // 1: being looked at, 2: done
	var visit func(name, by string) error
	visit = func(name, by string) error {
		name = strings.ReplaceAll(name, "-", "_")
		if m.builtin[name] || state[name] == 2 {
			return nil
		}
		if state[name] == 1 {
			return fmt.Errorf("module %s needs itself, by way of %s", name, by)
		}
		state[name] = 1
		needs, err := m.depends(name)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the kernel package has no module %s (needed by %s)", name, by)
		}
		if err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
		for _, n := range needs {
			if err := visit(n, name); err != nil {
				return err
			}
		}
		state[name] = 2
		all = append(all, name)
		return nil
	}
	for _, n := range names {
		if err := visit(n, "rxevm"); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// moduleFile is the path of a module in the cache.
func (k kernelDir) moduleFile(name string) string {
	return filepath.Join(k.dir, "modules", name+".ko")
}

// modules opens the kernel's modules. Their dependencies stand in the modules themselves: the index
// that depmod makes is not in a package.
func (k kernelDir) modules() (moduleSet, error) {
	b, err := os.ReadFile(filepath.Join(k.dir, "modules.builtin"))
	if err != nil {
		return moduleSet{}, err
	}
	return moduleSet{builtin: parseBuiltin(string(b)), depends: func(name string) ([]string, error) {
		f, err := elf.Open(k.moduleFile(name))
		if err != nil {
			return nil, err
		}
		defer f.Close()
		s := f.Section(".modinfo")
		if s == nil {
			return nil, errors.New("no .modinfo section")
		}
		info, err := s.Data()
		if err != nil {
			return nil, err
		}
		return parseDepends(info), nil
	}}, nil
}

// parseBuiltin parses modules.builtin: one path a line.
func parseBuiltin(text string) map[string]bool {
	all := map[string]bool{}
	for line := range strings.Lines(text) {
		name, _, _ := strings.Cut(filepath.Base(strings.TrimSpace(line)), ".ko")
		all[strings.ReplaceAll(name, "-", "_")] = true
	}
	return all
}

// parseDepends finds the modules that one depends on in its .modinfo section: strings that each end
// in a zero, depends=a,b.
func parseDepends(info []byte) []string {
	for s := range bytes.SplitSeq(info, []byte{0}) {
		if d, ok := strings.CutPrefix(string(s), "depends="); ok {
			return strings.FieldsFunc(d, func(r rune) bool { return r == ',' })
		}
	}
	return nil
}

// rdmaModules are what soft-RoCE, uverbs and the connection manager take, and what rxe asks of the
// crypto code at run time.
var rdmaModules = []string{"udp_tunnel", "ip6_udp_tunnel", "crc32_generic", "crc32c_generic", "ib_core", "ib_uverbs", "rdma_rxe",
	"configfs", "ib_cm", "iw_cm", "rdma_cm", "rdma_ucm", "dummy", "veth"}

// portModules make the serial port.
var portModules = []string{"virtio_pci", "virtio_console"}

// addModules packs modules into an image and returns the loading orders; extra ones come last.
func (k kernelDir) addModules(im image, extra []string) (bootConfig, error) {
	set, err := k.modules()
	if err != nil {
		return bootConfig{}, err
	}
	var cfg bootConfig
	first, err := set.order(portModules...)
	if err != nil {
		return cfg, err
	}
	all, err := set.order(slices.Concat(portModules, rdmaModules, extra)...)
	if err != nil {
		return cfg, err
	}
	seen := map[string]bool{}
	for _, name := range slices.Concat(first, all) {
		if seen[name] {
			continue
		}
		seen[name] = true
		b, err := os.ReadFile(k.moduleFile(name))
		if err != nil {
			return cfg, err
		}
		path := "/usr/lib/modules/" + k.release + "/" + name + ".ko"
		im.file(path, 0o644, b)
		if slices.Contains(first, name) {
			cfg.PortModules = append(cfg.PortModules, path)
		} else {
			cfg.Modules = append(cfg.Modules, path)
		}
	}
	return cfg, nil
}

// seriesArchs says which architectures a series is offered for.
var seriesArchs = map[string]string{"amd64": "qemu-system-x86_64", "arm64": "qemu-system-aarch64"}

// archNames lists the guest architectures.
func archNames() []string { return slices.Sorted(maps.Keys(seriesArchs)) }
