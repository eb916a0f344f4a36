package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/mlx5/model"
	"github.com/goverbs/goverbs/tools/internal/flags"
	"github.com/goverbs/goverbs/tools/internal/plural"
	"github.com/goverbs/goverbs/uverbs/uverbstest/simproc"
)

//go:embed testdata/differential/differential.c
var differentialSource embed.FS

const differentialUsage = `usage: mlx5sim differential [flags]

Has a program in C, on libibverbs and libmlx5, and one in Go, on goverbs, carry out the same random
script on a ConnectX in software each, and compares what the device sees of them, and what they
see, field by field. It takes a C compiler and the headers of libibverbs.

flags:
`

// twinName is the hidden command that is the program in Go.
const twinName = "differential-twin"

// differentialOptions are what the flags of differential say.
type differentialOptions struct {
	requests, seeds int
	seed            uint64
	json, verbose   bool
	keep            string
}

func (o *differentialOptions) parse(args []string, stdout io.Writer) error {
	fs := flag.NewFlagSet("mlx5sim differential", flag.ContinueOnError)
	fs.IntVar(&o.requests, "n", 10000, "how many requests each script posts at least, a `NUMBER`")
	fs.Uint64Var(&o.seed, "seed", 1, "the first `SEED`: the same makes the same script")
	fs.IntVar(&o.seeds, "seeds", 1, "how many seeds, from the first one on, a `NUMBER`")
	fs.BoolVar(&o.json, "json", false, "print a line of JSON a seed")
	fs.StringVar(&o.keep, "keep", "", "write the script of the first seed to a `FILE`")
	err := flags.Parse(fs, args, differentialUsage, stdout)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, "\ndifferences that are allowed:\n")
		for _, d := range differences {
			fmt.Fprintf(stdout, "  %s: %s\n", d.name, d.reason)
		}
		return err
	}
	switch {
	case err != nil:
		return err
	case o.requests < 1 || o.requests > 10_000_000:
		return fmt.Errorf("-n %d: want 1 to 10000000", o.requests)
	case o.seeds < 1 || o.seeds > 1_000_000:
		return fmt.Errorf("-seeds %d: want 1 to 1000000", o.seeds)
	case fs.NArg() > 0:
		return fmt.Errorf("%q: want flags only", fs.Arg(0))
	}
	return nil
}

// cmdDifferential is mlx5sim differential.
func cmdDifferential(args []string, stdout, stderr io.Writer) int {
	var o differentialOptions
	switch err := o.parse(args, stdout); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "mlx5sim differential: %v\nmlx5sim differential -h lists the flags.\n", err)
		return exitUsage
	}
	dir, err := os.MkdirTemp("", "mlx5sim-differential-")
	if err != nil {
		fmt.Fprintf(stderr, "mlx5sim differential: %v\n", err)
		return exitSystem
	}
	defer os.RemoveAll(dir)
	// A signal ends the programs, and what was made is removed.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	c, err := buildDifferential(ctx, dir)
	if err == nil {
		err = o.run(ctx, c, stdout)
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errDiffers):
		fmt.Fprintf(stderr, "mlx5sim differential: %v\n", err)
		return exitViolations
	}
	fmt.Fprintf(stderr, "mlx5sim differential: %v\n", err)
	return exitSystem
}

// cmdTwin is the program in Go: it carries out the script that it reads.
func cmdTwin(stdin *os.File, stdout, stderr io.Writer) int {
	if err := runTwin(stdin, stdout); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

// buildDifferential builds the program in C.
func buildDifferential(ctx context.Context, dir string) (string, error) {
	text, err := differentialSource.ReadFile("testdata/differential/differential.c")
	if err != nil {
		return "", err
	}
	source, out := filepath.Join(dir, "differential.c"), filepath.Join(dir, "differential")
	if err := os.WriteFile(source, text, 0o600); err != nil {
		return "", err
	}
	return out, compileC(ctx, out, []string{"-O2"}, source)
}

// run compares the seeds, and says what it found.
func (o *differentialOptions) run(ctx context.Context, c string, stdout io.Writer) error {
	seen := make(map[string]int)
	total := 0
	began := time.Now()
	for i := range o.seeds {
		seed := o.seed + uint64(i)
		p := scriptOf(seed, o.requests)
		if i == 0 && o.keep != "" {
			if err := os.WriteFile(o.keep, p.text, 0o600); err != nil {
				return err
			}
		}
		mine := make(map[string]int)
		begin := time.Now()
		if err := p.differ(ctx, c, mine); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("seed %d, -n %d: %w", seed, o.requests, err)
		}
		total += p.requests
		for name, n := range mine {
			seen[name] += n
		}
		if o.json {
			fmt.Fprintf(stdout, `{"seed":%d,"requests":%d,"steps":%d,"device":%q,"seconds":%.3f}`+"\n", seed, p.requests, p.steps, p.kind(), time.Since(begin).Seconds())
		} else {
			fmt.Fprintf(stdout, "seed %d: %s in %s on %s, %.1f s: the same\n", seed, plural.Of(p.requests, "request"), plural.Of(p.steps, "step"), p.kind(), time.Since(begin).Seconds())
		}
	}
	var names []string
	for _, d := range differences {
		if seen[d.name] > 0 {
			names = append(names, fmt.Sprintf("%s (%d)", d.name, seen[d.name]))
		}
	}
	if o.json {
		fmt.Fprintf(stdout, `{"requests":%d,"seeds":%d,"seconds":%.3f,"differences":%d}`+"\n", total, o.seeds, time.Since(began).Seconds(), len(names))
		return nil
	}
	fmt.Fprintf(stdout, "%s over %s in %.0f s, only the named differences: %s\n", plural.Of(total, "request"), plural.Of(o.seeds, "seed"), time.Since(began).Seconds(), strings.Join(names, ", "))
	return nil
}

// differentialScript is the script of a seed, and the device that it is for.
type differentialScript struct {
	seed            uint64
	text            []byte
	requests, steps int
	infiniBand      bool
	device          model.DeviceConfig
}

// scriptOf makes the script of a seed. Devices with InfiniBand and RoCE take turns, and among them
// are such as older kernels, or hosts without write-combining, make of them.
func scriptOf(seed uint64, requests int) *differentialScript {
	p := &differentialScript{seed: seed, infiniBand: seed%2 == 0, device: model.DeviceConfig{
		Name: "mlx5_0", Ports: []model.PortConfig{{InfiniBand: seed%2 == 0}},
		StaticUARs: seed%5 == 3, NoBlueFlame: seed%7 == 4,
	}}
	p.text, p.requests, p.steps = generate(seed, requests, p.infiniBand)
	return p
}

// kind says what kind of device it is.
func (p *differentialScript) kind() string {
	s := "RoCE"
	if p.infiniBand {
		s = "InfiniBand"
	}
	for _, k := range []struct {
		is   bool
		name string
	}{{p.device.StaticUARs, "static registers"}, {p.device.NoBlueFlame, "no write-combining"}} {
		if k.is {
			s += ", " + k.name
		}
	}
	return s
}

// differ has both programs carry out the script, and compares them.
func (p *differentialScript) differ(ctx context.Context, c string, seen map[string]int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	sides := []side{{name: "C"}, {name: "Go"}}
	errs := make([]error, 2)
	var both sync.WaitGroup
	both.Go(func() {
		command := append(coreLoader(os.Getenv(coreVar)), c)
		sides[0].records, errs[0] = p.play(ctx, differentialEnvironment(), command[0], command[1:]...)
	})
	both.Go(func() { sides[1].records, errs[1] = p.play(ctx, os.Environ(), self, twinName) })
	both.Wait()
	if err := compare(sides[0], sides[1], seen); err != nil {
		return errors.Join(fmt.Errorf("%w: %w", errDiffers, err), errs[0], errs[1])
	}
	return errors.Join(errs...)
}

// differentialEnvironment is that of the program in C. goverbs has no payload put into completions,
// so neither has libmlx5.
func differentialEnvironment() []string {
	return append(toolEnvironment(), "MLX5_SCATTER_TO_CQE=0")
}

// differentialLimit is how long a program may take for a script, which waits for nothing.
const differentialLimit = 15 * time.Minute

// play has a program carry out the script on a model of its own.
func (p *differentialScript) play(ctx context.Context, env []string, name string, args ...string) ([]record, error) {
	m, err := model.New(p.device)
	if err != nil {
		return nil, err
	}
	s, err := simproc.Serve(m, &simproc.Options{NoMount: true})
	if err != nil {
		return nil, err
	}
	r := newRecorder()
	r.attach(m)
	var out, complaints bytes.Buffer
	cmd := s.Command(name, args...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, bytes.NewReader(p.text), &out, &complaints
	ctx, cancel := context.WithTimeoutCause(ctx, differentialLimit, fmt.Errorf("it hangs for %v", differentialLimit))
	defer cancel()
	if err = cmd.Start(); err == nil {
		stop := context.AfterFunc(ctx, cmd.Kill)
		err = cmd.Wait()
		if !stop() {
			err = errors.Join(context.Cause(ctx), err)
		}
	}
	err = errors.Join(err, s.Close())
	if err != nil || complaints.Len() > 0 {
		err = fmt.Errorf("%v: %s", err, complaints.Bytes())
	}
	for _, v := range append(m.Violations(), r.errs...) {
		err = errors.Join(err, errors.New(v))
	}
	if err != nil {
		err = fmt.Errorf("%q: %w", append([]string{filepath.Base(name)}, args...), err)
	}
	// What a program sees comes behind what the device did in the same step.
	all := append(r.records, output(out.Bytes())...)
	slices.SortStableFunc(all, func(a, b record) int { return a.step - b.step })
	return all, err
}
