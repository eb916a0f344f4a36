// Package layout reads and writes the table of kernel layouts that goverbs
// generates its package abi from.
//
// The table is plain text, so that a new kernel's changes can be reviewed as a
// diff. "abigen scan" writes it from the DWARF of a distribution's UAPI
// headers; "abigen gen", the layout tests and the BTF check read it:
//
//	f, err := os.Open("testdata/abi/uapi-6.12.txt")
//	...
//	t, err := layout.Read(f)
//	...
//	wc, ok := t.Type("ib_uverbs_wc")
//	for _, f := range wc.Fields {
//		fmt.Println(f.Offset, f.Name, f.Type)
//	}
//
// A Table is data. Any number of goroutines may read one at the same time as
// long as none changes it.
//
// Errors of Read name the line that they are about. Read checks that every
// field lies inside its struct, that fields of a struct do not overlap, and
// that every named type has a definition, so that a damaged table is found
// when it is read and not by a wrong offset later.
package layout
