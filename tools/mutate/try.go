package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/goverbs/goverbs/tools/internal/source"
)

// A verdict says what came of a mutation. All but caught are failures.
type verdict string

const (
	caught       verdict = "caught"
	survived     verdict = "survived"
	timedOut     verdict = "timed out"
	skipped      verdict = "skipped"
	noTest       verdict = "no such test"
	doesNotApply verdict = "does not apply"
	doesNotBuild verdict = "does not compile"
	failsAnyway  verdict = "fails without the bug"
	brokenOff    verdict = "broken off" // the test's process was ended by somebody
	notTried     verdict = "not tried"  // the machine would not let us
)

// A result is a verdict and what explains it, the first line by itself.
type result struct {
	verdict verdict
	detail  string
}

const (
	// soundLimit is how long a test may take without a bug.
	soundLimit = 5 * time.Minute
	// hangLimit is how long a test is waited for that is said to hang. The others get
	// longer, so that a slow machine does not make failures of them.
	hangLimit = 20 * time.Second
)

// A trial tries mutations on copies of the source.
type trial struct {
	options
	dir   string // of all that is made
	sound string // the source as it is
	temp  string // for temporary files of programs: who is killed leaves some
}

// try tries the mutations. kept is the folder of the copies that were to be kept, if there
// are any.
func try(ctx context.Context, root string, all []*mutation, o *options, r *report) (kept string, err error) {
	dir, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return "", err
	}
	defer func() {
		if kept == "" {
			err = errors.Join(err, remove(dir))
		}
	}()
	t := &trial{options: *o, dir: dir, sound: filepath.Join(dir, "sound"), temp: filepath.Join(dir, "tmp")}
	if err := os.Mkdir(t.temp, 0o777); err != nil {
		return "", err
	}
	if err := source.Copy(ctx, t.sound, root); err != nil {
		return "", err
	}
	before := t.baseline(ctx, all)
	t.each(len(all), func(i int) {
		start := time.Now()
		res, tried := before[keyOf(all[i])], false
		if res.verdict == survived {
			res, tried = t.mutant(ctx, all[i]), true
		}
		if ctx.Err() != nil {
			return
		}
		r.result(all[i], res, time.Since(start))
		if tried && t.keep && res.verdict != caught {
			return
		}
		_ = os.RemoveAll(t.copyOf(all[i])) // the end of dir is what counts
	})
	if !t.keep || ctx.Err() != nil {
		return "", nil
	}
	for _, rest := range []string{t.sound, t.temp} {
		if err := remove(rest); err != nil {
			return "", err
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) == 0 {
		return "", err
	}
	return dir, nil
}

// remove removes a folder. Programs that were killed in it may take a moment to be gone.
func remove(dir string) error {
	for tries := 0; ; tries++ {
		err := os.RemoveAll(dir)
		if err == nil || tries == 50 {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// each calls f with the numbers below n, some at a time.
func (t *trial) each(n int, f func(i int)) {
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(t.jobs, n) {
		wg.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

// copyOf is the folder of a mutation's copy.
func (t *trial) copyOf(m *mutation) string { return filepath.Join(t.dir, m.name) }

// A key tells tests apart.
type key struct{ pkg, test, env string }

func keyOf(m *mutation) key { return key{m.pkg, m.test, strings.Join(m.env, "\n")} }

// baseline runs the tests without a bug. The verdict of those that are fit to catch one is
// survived.
func (t *trial) baseline(ctx context.Context, all []*mutation) map[key]result {
	packages := map[string][]*mutation{}
	var names []string
	for _, m := range all {
		if packages[m.pkg] == nil {
			names = append(names, m.pkg)
		}
		packages[m.pkg] = append(packages[m.pkg], m)
	}
	var mu sync.Mutex
	results := map[key]result{}
	t.each(len(names), func(i int) {
		name := names[i]
		binary := filepath.Join(t.dir, fmt.Sprintf("sound%d.test", i))
		defer os.Remove(binary)
		failed := t.build(ctx, t.sound, name, binary)
		for _, m := range packages[name] {
			mu.Lock()
			_, done := results[keyOf(m)]
			mu.Unlock()
			if done {
				continue
			}
			res := failed
			if res.verdict == "" {
				res = t.test(ctx, t.sound, binary, m, soundLimit)
			}
			switch res.verdict {
			case survived, noTest, skipped:
			case caught:
				res.verdict = failsAnyway
			default:
				res = result{failsAnyway, fmt.Sprintf("%s: %s", res.verdict, res.detail)}
			}
			mu.Lock()
			results[keyOf(m)] = res
			mu.Unlock()
		}
	})
	return results
}

// mutant tries a mutation.
func (t *trial) mutant(ctx context.Context, m *mutation) result {
	dir := t.copyOf(m)
	if err := source.Copy(ctx, dir, t.sound); err != nil {
		return result{notTried, err.Error()}
	}
	if err := apply(ctx, dir, m, false); err != nil {
		return result{doesNotApply, "mend the patch, or drop it if there can be no such bug any more\n" + err.Error()}
	}
	binary := filepath.Join(dir, "mutant.test")
	if failed := t.build(ctx, dir, m.pkg, binary); failed.verdict != "" {
		return failed
	}
	limit := t.timeout
	if m.hang {
		limit = min(limit, hangLimit)
	}
	res := t.test(ctx, dir, binary, m, limit)
	if res.verdict == timedOut && m.hang {
		res.verdict = caught
	}
	return res
}
