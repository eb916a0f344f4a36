// Package btfcheck holds a layout table against the types of a running kernel.
//
// The table comes from the DWARF of header files, the kernel's BTF from the
// kernel that was built with them: two compilers, two formats, one truth.
//
//	cache := btf.NewCache()
//	vmlinux, err := cache.Kernel()
//	...
//	uverbs, err := cache.Module("ib_uverbs")
//	...
//	r, err := btfcheck.Compare(table, vmlinux, uverbs)
//	for _, f := range r.Failures {
//		t.Error(f)
//	}
//
// A kernel may be older or newer than the table, and structs of a stable ABI
// grow at their end or into bytes that were reserved. So the rules are:
//
//   - A field that both have must have the same offset and size.
//   - A field that the kernel lacks must lie behind the end of the kernel's struct
//     or in bytes that the kernel reserves.
//   - A field that the table lacks must lie behind the end of the table's
//     struct or in bytes that the table reserves.
//   - A constant that both have must have the same value, unless it stands at the
//     end of its enum to count the others (…_NUM_OPS, …_MAX).
//
// Anything else is a failure. What one of them lacks is noted. Compare starts no goroutine
// and keeps nothing; its error is one of reading the BTF.
package btfcheck
