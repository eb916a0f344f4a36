package selftest

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// What a device writes while it is compared is right or wrong, and its place can be told.
func TestDifferWhileWritten(t *testing.T) {
	mem, err := uverbs.Alloc(4096, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	b := mem.Bytes()[:100]
	fill(b, 7, nil)
	word, stop, done := mem.Uint64(88), atomic.Bool{}, make(chan struct{})
	go func() {
		defer close(done)
		for right := word.Load(); !stop.Load(); {
			word.Store(^right)
			word.Store(right)
		}
	}()
	rest := sync.OnceFunc(func() { stop.Store(true); <-done })
	defer rest()
	for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); {
		if err := differ(b, 7, nil); err != nil && !strings.Contains(err.Error(), "of 100 bytes ") {
			t.Fatal(err)
		}
	}
	rest()
	if err := differ(b, 7, nil); err != nil {
		t.Error(err)
	}
}
