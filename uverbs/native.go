package uverbs

import "encoding/binary"

// native is the byte order of the kernel's structs: the machine's own.
var native = binary.NativeEndian
