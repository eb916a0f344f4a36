//go:build !linux

package main

import "errors"

var errNoBench = errors.New("programs are measured on Linux alone")

func processors() ([]int, error) { return nil, errNoBench }
func pin(int) error              { return errNoBench }
func smallPages() error          { return errNoBench }
