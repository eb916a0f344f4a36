package cputime

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"
)

// What a loop uses is seen, by the thread's clock and by the process's.
func TestUsed(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for name, now := range map[string]func() (Stamp, error){"process": Process, "thread": Thread} {
		before, err := now()
		if errors.Is(err, errors.ErrUnsupported) && runtime.GOOS != "linux" {
			t.Skip("declared skip: processor time is measured on Linux only")
		}
		if err != nil {
			t.Fatal(err)
		}
		const want = 2 * time.Millisecond
		end := time.Now().Add(time.Minute)
		for {
			after, err := now()
			if err != nil {
				t.Fatal(err)
			}
			user, system := after.Since(before)
			if user < 0 || system < 0 || after.Used()-before.Used() != user+system {
				t.Fatalf("%s: %v user and %v system between %+v and %+v", name, user, system, before, after)
			}
			if user+system >= want {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s: a minute of work has used %v", name, user+system)
			}
		}
	}
}

func ExampleProcess() {
	before, err := Process()
	if err != nil {
		fmt.Println("not on this system")
		return
	}
	after, _ := Process()
	user, system := after.Since(before)
	fmt.Println(user >= 0 && system >= 0)
	// Output: true
}
