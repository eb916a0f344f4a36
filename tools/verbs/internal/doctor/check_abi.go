package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"

	"github.com/cilium/ebpf/btf"

	tables "github.com/goverbs/goverbs/testdata/abi"
	"github.com/goverbs/goverbs/tools/abigen/btfcheck"
	"github.com/goverbs/goverbs/tools/abigen/layout"
	"github.com/goverbs/goverbs/tools/internal/plural"
)

// typesDir is where the kernel describes its types.
const typesDir = "sys/kernel/btf"

// abiModules are those that define the interface.
var abiModules = []string{"ib_uverbs", "rdma_rxe", "mlx5_ib", "ib_core"}

// checkABI compares the structs that the library was built with with those of the kernel.
var checkABI = Check{
	Name:  "abi",
	About: "the layout of the verbs interface in the kernel's own description of its types, against the one that this program was built with",
	After: []string{"system", "modules"},
	Run: func(ctx context.Context, n *Node) ([]Finding, error) {
		if !n.exists("sys/module/ib_uverbs") {
			return nil, nil // which the check of modules tells
		}
		if !n.exists(typesDir+"/vmlinux") || !n.exists(typesDir+"/ib_uverbs") {
			return []Finding{{
				Severity: Note,
				What:     "the kernel does not describe the types of its modules, so that the verbs interface cannot be compared with ours",
				Seen:     "/" + typesDir + "/ib_uverbs does not exist",
				Mend:     "nothing needs to be done; Linux 5.11 and later have it if built with CONFIG_DEBUG_INFO_BTF_MODULES, and containers may hide it",
			}}, nil
		}
		r, err := n.compareTypes(ctx)
		if err != nil {
			return nil, err
		}
		n.saw("%d structs with %d fields were compared", r.Structs, r.Fields)
		if len(r.Failures) == 0 {
			return nil, nil
		}
		return []Finding{{
			Severity: Fault,
			What: fmt.Sprintf("the verbs interface of this kernel is not the one that this program was built for (%s): calls may fail, or do what was not meant",
				plural.Of(len(r.Failures), "difference")),
			Seen: "/" + typesDir + ": " + strings.Join(r.Failures[:min(3, len(r.Failures))], "; "),
			Mend: "use a kernel whose uverbs interface was not changed by its vendor, and report it with the output of verbs doctor -json",
		}}, nil
	},
}

// ours are the structs that the library was built with. Constants are left out: to find those
// of the kernel takes longer than all else, and a number that has a meaning keeps it.
var ours = sync.OnceValues(func() (*layout.Table, error) {
	t, err := layout.Read(strings.NewReader(tables.Layout))
	if err != nil {
		return nil, err
	}
	for _, h := range t.Headers {
		h.Enums = nil
	}
	return t, nil
})

// compareTypes makes the comparison.
func (n *Node) compareTypes(ctx context.Context) (*btfcheck.Report, error) {
	table, err := ours()
	if err != nil {
		return nil, err
	}
	b, err := n.types("vmlinux")
	if err != nil {
		return nil, err
	}
	base, err := btf.LoadSpecFromReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("/%s/vmlinux: %w", typesDir, err)
	}
	var modules []*btf.Spec
	for _, name := range abiModules {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		b, err := n.types(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it is not loaded, or part of vmlinux
		}
		if err != nil {
			return nil, err
		}
		s, err := btf.LoadSplitSpecFromReader(bytes.NewReader(b), base)
		if err != nil {
			return nil, fmt.Errorf("/%s/%s: %w", typesDir, name, err)
		}
		modules = append(modules, s)
	}
	return btfcheck.Compare(table, base, modules...)
}

// maxTypes is more than the description of a kernel's types has, which is 4 to 10 MB.
const maxTypes = 64 << 20

// types reads a file of BTF whole: the kernel's files have no other way to be read than in
// order, and parsing goes to and fro.
func (n *Node) types(name string) ([]byte, error) {
	file := typesDir + "/" + name
	f, err := n.Root.Open(file)
	if err != nil {
		return nil, fmt.Errorf("/%s: %w", file, bare(err))
	}
	defer f.Close()
	var b bytes.Buffer
	if info, err := f.Stat(); err == nil && info.Size() <= maxTypes {
		b.Grow(int(info.Size()) + bytes.MinRead)
	}
	if _, err := io.Copy(&b, io.LimitReader(f, maxTypes+1)); err != nil {
		return nil, fmt.Errorf("/%s: %w", file, bare(err))
	}
	if b.Len() > maxTypes {
		return nil, fmt.Errorf("/%s: more than %d bytes", file, maxTypes)
	}
	return b.Bytes(), nil
}
