package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// machine is what the throw-away file is compiled for. Any 64-bit machine gives the same table.
const machine = "x86_64-linux-gnu"

// macroPrefix starts the names of the enums that macros are lifted into.
const macroPrefix = "goverbs_macro_"

// skipMacros names the macros that are no numbers, or whose number would mislead.
var skipMacros = map[string]string{
	"RDMA_NLA_TYPE_MASK": "an int with its upper bits set; a netlink attribute type has 16 bits",
}

// ioctlMacro matches the bodies of ioctl numbers. Only RDMA_VERBS_IOCTL is spoken by goverbs; the others
// belong to umad and hfi1 and need types that are not in the table.
var ioctlMacro = regexp.MustCompile(`\b_IO(R|W|WR)?\(`)

// compile makes an object file whose DWARF describes all that the headers declare. Macros leave no trace in
// DWARF, so each becomes an enum. It returns the object's path and the macros of each header in order.
func compile(include string) (object string, macros map[string][]string, err error) {
	macros = map[string][]string{}
	var src bytes.Buffer
	fmt.Fprintln(&src, "#include <linux/netlink.h>")
	for _, h := range headers {
		fmt.Fprintf(&src, "#include <%s>\n", h)
	}
	n := 0
	for _, h := range headers {
		if !strings.HasPrefix(h, "rdma/") {
			continue
		}
		names, err := numberMacros(filepath.Join(include, h))
		if err != nil {
			return "", nil, err
		}
		macros[h] = names
		for _, name := range names {
			fmt.Fprintf(&src, "enum %s%s { %svalue_%s = %s };\n", macroPrefix, name, macroPrefix, name, name)
			n++
		}
	}
	if n == 0 {
		return "", nil, fmt.Errorf("no macro found in the headers under %s", include)
	}
	dir, err := os.MkdirTemp("", "abigen-")
	if err != nil {
		return "", nil, err
	}
	defer os.RemoveAll(dir)
	c := filepath.Join(dir, "uapi.c")
	if err := os.WriteFile(c, src.Bytes(), 0o644); err != nil {
		return "", nil, err
	}
	f, err := os.CreateTemp("", "abigen-*.o")
	if err != nil {
		return "", nil, err
	}
	f.Close()
	_, err = output(dir, "gcc", "-c", "-g", "-gdwarf-5", "-fno-eliminate-unused-debug-types", "-std=gnu11",
		"-nostdinc", "-isystem", include, "-isystem", filepath.Join(include, machine), "-o", f.Name(), c)
	if err != nil {
		os.Remove(f.Name())
		return "", nil, err
	}
	return f.Name(), macros, nil
}

var define = regexp.MustCompile(`^\s*#\s*define\s+([A-Za-z_][A-Za-z0-9_]*)(\s+\S.*)$`)

// numberMacros returns the object-like macros of a header that have a body and are numbers.
func numberMacros(path string) ([]string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	text := bytes.ReplaceAll(b, []byte("\\\n"), []byte(" "))
	var names []string
	s := bufio.NewScanner(bytes.NewReader(text))
	for s.Scan() {
		m := define.FindStringSubmatch(s.Text())
		if m == nil || skipMacros[m[1]] != "" || slices.Contains(names, m[1]) {
			continue
		}
		if ioctlMacro.MatchString(m[2]) && m[1] != "RDMA_VERBS_IOCTL" {
			continue
		}
		names = append(names, m[1])
	}
	return names, s.Err()
}
