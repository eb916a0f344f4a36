// Package conformance reads testdata/conformance.md, which says what became of each test of
// rdma-core's own suite here, and compares it with what tests came to. Its test holds the
// table to the source; rxevm test holds it to the runs.
package conformance
