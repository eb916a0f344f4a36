// Package abi embeds the tables that goverbs generates its ABI from, so that a
// test binary carries them into a guest that has no source tree.
package abi

import _ "embed"

// Layout is the table of structs, enums and macros. Package layout of tools/abigen reads it.
//
//go:embed uapi-6.12.txt
var Layout string
