package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/goverbs/goverbs/tools/abigen/layout"
	"github.com/goverbs/goverbs/tools/internal/source"
)

// headers are the UAPI headers that goverbs speaks, each after those whose types it uses.
// rdma_user_ioctl.h is left out: it holds ioctl numbers of umad and hfi1, which goverbs does not speak.
// The first two are not RDMA's: from them only the types that the others reach are kept.
var headers = []string{
	"linux/in.h",
	"linux/in6.h",
	"rdma/ib_user_verbs.h",
	"rdma/ib_user_ioctl_verbs.h",
	"rdma/ib_user_ioctl_cmds.h",
	"rdma/rdma_user_ioctl_cmds.h",
	"rdma/mlx5_user_ioctl_verbs.h",
	"rdma/mlx5_user_ioctl_cmds.h",
	"rdma/mlx5-abi.h",
	"rdma/rdma_user_rxe.h",
	"rdma/rdma_netlink.h",
}

// scan fetches the headers, compiles them and writes the table.
func scan(series, out string, log io.Writer) error {
	if out == "" {
		root, err := source.Root(".")
		if err != nil {
			return err
		}
		out = filepath.Join(root, "testdata", "abi", "uapi-"+series+".txt")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	version, include, err := fetchHeaders(filepath.Join(cache, "goverbs", "abigen"), series, log)
	if err != nil {
		return err
	}
	object, macros, err := compile(include)
	if err != nil {
		return err
	}
	defer os.Remove(object)
	t, err := readDWARF(object, include, macros)
	if err != nil {
		return err
	}
	t.Package, t.Version = headerPackage, version
	var text bytes.Buffer
	if err := t.Write(&text); err != nil {
		return err
	}
	if _, err := layout.Read(bytes.NewReader(text.Bytes())); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(out), ".abigen-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	if _, err := tmp.Write(text.Bytes()); err != nil {
		tmp.Close()
		return err
	}
	if err := tmp.Chmod(0o644); err != nil {
		tmp.Close()
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	fmt.Fprintf(log, "abigen: %s %s -> %s\n", headerPackage, version, out)
	return os.Rename(tmp.Name(), out)
}
