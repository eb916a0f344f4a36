package sim

import (
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/abi"
	"github.com/goverbs/goverbs/uverbs/internal/kernel"
)

// openEvents makes a file with an asynchronous event file.
func openEvents(t *testing.T, f *Fabric) (kernel.File, kernel.EventFile) {
	t.Helper()
	file := openFile(t, f)
	fd, err := send(t, file, abi.UVERBS_OBJECT_ASYNC_EVENT, abi.UVERBS_METHOD_ASYNC_EVENT_ALLOC, attr{id: abi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE})
	if err != nil {
		t.Fatal(err)
	}
	e, err := file.Events(int(fd))
	if err != nil {
		t.Fatal(err)
	}
	if e.FD() != int(fd) || e.PollFD() != -1 {
		t.Errorf("FD %d, PollFD %d, want %d and -1", e.FD(), e.PollFD(), fd)
	}
	t.Cleanup(func() { e.Close() })
	return file, e
}

// cable raises n events.
func cable(t *testing.T, f *Fabric, n int) {
	t.Helper()
	d := f.Model().Device("sim0")
	for range n {
		p, err := d.Port(1)
		if err == nil {
			err = d.SetPort(1, !p.Up)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestRead(t *testing.T) {
	f := newFabric(t)
	file, e := openEvents(t, f)
	var record [16]byte
	if n, err := e.Read(record[:]); n != 0 || err != syscall.EAGAIN {
		t.Errorf("nothing there: %d, %v", n, err)
	}
	cable(t, f, 1)
	if n, err := e.Read(record[:15]); n != 0 || err != syscall.EINVAL {
		t.Errorf("15 bytes of 16: %d, %v", n, err)
	}
	if n, err := e.Read(record[:]); n != 16 || err != nil || ne.Uint64(record[:]) != 1 || ne.Uint32(record[8:]) != 10 {
		t.Errorf("%d, %v: % x", n, err, record)
	}
	cable(t, f, 1)
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	// What was there can be read after the file; then it breaks off.
	if n, err := e.Read(record[:]); n != 16 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := e.Read(record[:]); n != 0 || err != syscall.EIO {
		t.Errorf("without its file: %d, %v", n, err)
	}
	if n, err := e.ReadWait(record[:]); n != 0 || err != syscall.EIO {
		t.Errorf("without its file: %d, %v", n, err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	_, errRead := e.Read(record[:])
	_, errWait := e.ReadWait(record[:])
	for what, err := range map[string]error{"Read": errRead, "ReadWait": errWait, "SetReadDeadline": e.SetReadDeadline(time.Time{}), "Close": e.Close()} {
		if err != os.ErrClosed {
			t.Errorf("%s after Close: %v", what, err)
		}
	}
}

func TestReadDoesNotAllocate(t *testing.T) {
	f := newFabric(t)
	_, e := openEvents(t, f)
	var record [16]byte
	if n := testing.AllocsPerRun(100, func() { e.Read(record[:]) }); n != 0 {
		t.Errorf("Read of nothing allocates %v times", n)
	}
	const runs = 50
	cable(t, f, 2*runs+2)
	for what, read := range map[string]func([]byte) (int, error){"Read": e.Read, "ReadWait": e.ReadWait} {
		if n := testing.AllocsPerRun(runs, func() {
			if _, err := read(record[:]); err != nil {
				t.Error(err)
			}
		}); n != 0 {
			t.Errorf("%s allocates %v times", what, n)
		}
	}
}

// A reader that is parked, and how it is woken: what it returns, and when.
func TestReadWait(t *testing.T) {
	for _, c := range []struct {
		name string
		wake func(t *testing.T, f *Fabric, file kernel.File, e kernel.EventFile)
		want error
		took time.Duration
	}{
		{"a record", func(t *testing.T, f *Fabric, _ kernel.File, _ kernel.EventFile) { cable(t, f, 1) }, nil, time.Hour},
		{"Close", func(t *testing.T, _ *Fabric, _ kernel.File, e kernel.EventFile) {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}, os.ErrClosed, time.Hour},
		{"the end of the file", func(_ *testing.T, _ *Fabric, file kernel.File, _ kernel.EventFile) { file.Close() }, syscall.EIO, time.Hour},
		{"the end of the device, after its record", func(_ *testing.T, f *Fabric, _ kernel.File, _ kernel.EventFile) { f.Model().Device("sim0").Fail() }, nil, time.Hour},
		{"a deadline in the past", func(_ *testing.T, _ *Fabric, _ kernel.File, e kernel.EventFile) {
			e.SetReadDeadline(time.Now().Add(-time.Second))
		}, os.ErrDeadlineExceeded, time.Hour},
		{"a deadline to come", func(_ *testing.T, _ *Fabric, _ kernel.File, e kernel.EventFile) {
			e.SetReadDeadline(time.Now().Add(time.Minute))
		}, os.ErrDeadlineExceeded, time.Hour + time.Minute},
		{"a deadline that is put off, and a record before it", func(t *testing.T, f *Fabric, _ kernel.File, e kernel.EventFile) {
			e.SetReadDeadline(time.Now().Add(time.Minute))
			time.Sleep(time.Second)
			e.SetReadDeadline(time.Now().Add(time.Hour))
			time.Sleep(2 * time.Minute)
			cable(t, f, 1)
		}, nil, time.Hour + 2*time.Minute + time.Second},
		{"a deadline that is taken back", func(t *testing.T, f *Fabric, _ kernel.File, e kernel.EventFile) {
			e.SetReadDeadline(time.Now().Add(time.Minute))
			time.Sleep(time.Second)
			e.SetReadDeadline(time.Time{})
			time.Sleep(time.Hour)
			cable(t, f, 1)
		}, nil, 2*time.Hour + time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFabric(t)
				file, e := openEvents(t, f)
				start := time.Now()
				var done sync.WaitGroup
				done.Go(func() {
					var record [16]byte
					n, err := e.ReadWait(record[:])
					if took := time.Since(start); err != c.want || took != c.took || err == nil && n != 16 {
						t.Errorf("%d bytes, %v after %v, want %v after %v", n, err, took, c.want, c.took)
					}
				})
				time.Sleep(time.Hour)
				c.wake(t, f, file, e)
				done.Wait()
			})
		})
	}
}

// The deadline is looked at before what is there to be read.
func TestDeadlineComesFirst(t *testing.T) {
	f := newFabric(t)
	_, e := openEvents(t, f)
	cable(t, f, 1)
	e.SetReadDeadline(time.Now())
	var record [16]byte
	if _, err := e.ReadWait(record[:]); err != os.ErrDeadlineExceeded {
		t.Errorf("past the deadline: %v", err)
	}
	e.SetReadDeadline(time.Time{})
	if n, err := e.ReadWait(record[:]); n != 16 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

// Every record goes to one reader, however many are parked, and a Close ends all.
func TestManyReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t)
		_, e := openEvents(t, f)
		const readers, records = 5, 3
		results := make(chan error, readers)
		for range readers {
			go func() {
				var record [16]byte
				_, err := e.ReadWait(record[:])
				results <- err
			}()
		}
		synctest.Wait()
		cable(t, f, records)
		synctest.Wait()
		if len(results) != records {
			t.Fatalf("%d records woke %d readers", records, len(results))
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		for i := range readers {
			want := error(nil)
			if i >= records {
				want = os.ErrClosed
			}
			if err := <-results; err != want {
				t.Errorf("reader %d: %v, want %v", i, err, want)
			}
		}
	})
}

// Who does not park is told instead.
func TestNotify(t *testing.T) {
	f := newFabric(t)
	_, e := openEvents(t, f)
	told := 0
	e.Notify(func() { told++ })
	if told != 0 {
		t.Error("told of nothing")
	}
	cable(t, f, 2)
	if told != 2 {
		t.Errorf("told %d times of 2 records", told)
	}
	e.Notify(func() { told = 100 })
	if told != 100 {
		t.Error("not told of what is there already")
	}
	told = 0
	f.Model().Device("sim0").Fail()
	if told != 100 {
		t.Error("not told of the end")
	}
}
