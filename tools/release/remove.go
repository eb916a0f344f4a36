package main

import "os"

// removeAll removes a file or folder, also one in which somebody, such as an ended compiler, wrote
// until now.
func removeAll(name string) error {
	err := os.RemoveAll(name)
	for range 10 {
		if err == nil {
			break
		}
		err = os.RemoveAll(name)
	}
	return err
}
