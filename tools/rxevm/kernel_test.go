//go:build linux

package main

import (
	"io/fs"
	"slices"
	"strings"
	"testing"
)

// modulesOf makes a set out of a table of dependencies.
func modulesOf(needs map[string][]string, builtin ...string) moduleSet {
	m := moduleSet{builtin: map[string]bool{}, depends: func(name string) ([]string, error) {
		n, ok := needs[name]
		if !ok {
			return nil, fs.ErrNotExist
		}
		return n, nil
	}}
	for _, b := range builtin {
		m.builtin[b] = true
	}
	return m
}

func TestModulesComeBehindWhatTheyNeed(t *testing.T) {
	m := modulesOf(map[string][]string{
		"rdma_rxe": {"ib_uverbs", "ip6_udp_tunnel", "udp_tunnel", "ib_core"}, "ib_uverbs": {"ib_core"}, "ib_core": {"configfs"},
		"ip6_udp_tunnel": nil, "udp_tunnel": nil, "dummy": nil,
	}, "configfs", "crc32_generic")
	got, err := m.order("crc32-generic", "rdma_rxe", "ib-core", "dummy", "rdma_rxe")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"ib_core", "ib_uverbs", "ip6_udp_tunnel", "udp_tunnel", "rdma_rxe", "dummy"}
	if !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}

func TestModuleErrorsNameTheModule(t *testing.T) {
	m := modulesOf(map[string][]string{"a": {"b"}, "b": {"c"}, "x": {"y"}, "y": {"x"}})
	if _, err := m.order("a"); err == nil || !strings.Contains(err.Error(), "module c (needed by b)") {
		t.Errorf("a missing module: %v", err)
	}
	if _, err := m.order("x"); err == nil || !strings.Contains(err.Error(), "needs itself") {
		t.Errorf("a circle: %v", err)
	}
}

func TestModuleInformation(t *testing.T) {
	info := []byte("license=GPL\x00depends=ib_core,ib_uverbs\x00retpoline=Y\x00")
	if got := parseDepends(info); !slices.Equal(got, []string{"ib_core", "ib_uverbs"}) {
		t.Errorf("depends %q", got)
	}
	if got := parseDepends([]byte("depends=\x00")); len(got) != 0 {
		t.Errorf("no dependencies became %q", got)
	}
	b := parseBuiltin("kernel/fs/configfs/configfs.ko\nkernel/drivers/char/hw_random/rng-core.ko\n")
	if !b["configfs"] || !b["rng_core"] || len(b) != 2 {
		t.Errorf("built-in modules %v", b)
	}
}
