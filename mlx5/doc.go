// Package mlx5 is the ConnectX machine over plain memory. It makes no system
// call and maps nothing. What stands today is the half that says why a
// completion failed: error CQEs, their syndromes and their signature.
//
//	var entry [64]byte // from a dump that somebody pasted
//	e, err := mlx5.ParseErrorCQE(&entry)
//	if err != nil {
//		return err // not an error CQE, and why not
//	}
//	fmt.Println(e.Side, e.Syndrome.Status().Describe())
//	fmt.Println(e.Vendor)
//	if mlx5.CheckSignature(&entry, counter) == mlx5.SignatureWrong {
//		fmt.Println("the dump was altered")
//	}
//
// # Layouts
//
// A CQE is 64 bytes, big-endian, as struct mlx5_cqe64, mlx5_err_cqe and
// mlx5_sig_err_cqe of linux/mlx5/device.h have it. Of a 128-byte CQE it is the
// second half. Everything that comes out of this package is in host byte order.
//
// # Concurrency
//
// All of it is plain data and functions without state: use it from any
// goroutine.
//
// # Errors
//
// The parsers fail with [ErrNotErrorCQE] or [ErrCompressedCQE], wrapped with
// the byte that decided; no bytes make them panic. The tables know what is
// published; numbers they do not know print as numbers.
package mlx5
