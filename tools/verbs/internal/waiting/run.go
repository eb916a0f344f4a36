package waiting

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/goverbs/goverbs/tools/internal/waitreport"
	"github.com/goverbs/goverbs/tools/verbs/internal/cputime"
)

// Run measures what the configuration says, all variants in turn in each round, so that
// what the machine does besides hits all of them. tell, if not nil, is told how far it is.
// When ctx ends, Run returns what it has, together with the cause.
func Run(ctx context.Context, c Config, tell func(done, of int)) (r *waitreport.Report, err error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	all, err := c.variants()
	if err != nil {
		return nil, err
	}
	if _, err := cputime.Thread(); err != nil {
		return nil, err
	}
	m := &measurement{config: &c, stop: newStopper(ctx)}
	defer m.stop.cancel(nil)
	if err := m.open(); err != nil {
		return nil, errors.Join(err, m.close())
	}
	defer func() { err = errors.Join(err, m.close()) }()
	runtime.LockOSThread() // the client's
	defer runtime.UnlockOSThread()
	if err := exactSleep(); err != nil {
		return nil, err
	}
	r = waitreport.New()
	r.Device, r.Devices = c.Devices[1], c.describe()
	r.Slice, r.Outstanding, r.Bytes = usec(c.Slice), c.Outstanding, messageBytes
	err = m.rounds(all, tell)
	for _, v := range all {
		if v.left != "" {
			if note := fmt.Sprintf("%s is left out: %s", v.how.name, v.left); !slices.Contains(r.Notes, note) {
				r.Notes = append(r.Notes, note)
			}
		} else if len(v.rate) > 0 {
			r.Rows = append(r.Rows, v.row())
		}
	}
	if err == nil && len(r.Rows) == 0 {
		return nil, fmt.Errorf("nothing can be measured: %s", strings.Join(r.Notes, "; "))
	}
	r.Comparisons = compare(all)
	r.Interrupted = ctx.Err() != nil
	return r, err
}

func usec(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// measurement is the two ends at work.
type measurement struct {
	config *Config
	stop   *stopper
	client *client
	server server
}

func (m *measurement) open() error {
	c := m.config
	dev, err := c.Open(c.Devices[0])
	if err != nil {
		return err
	}
	e, err := openEnd(dev, c.Outstanding, false)
	if err != nil {
		return err
	}
	m.client = newClient(e, m.stop)
	if c.Server != nil {
		m.server, err = startRemote(m.stop, c, e)
		return err
	}
	if dev, err = c.Open(c.Devices[1]); err != nil {
		return err
	}
	s, err := openEnd(dev, c.Outstanding, true)
	if err != nil {
		return err
	}
	m.server = &localServer{e: s, fail: m.stop.cancel}
	if err := e.connect(m.stop.ctx, s.address()); err != nil {
		return err
	}
	return s.connect(m.stop.ctx, e.address())
}

func (m *measurement) close() (err error) {
	if m.server != nil {
		err = m.server.close()
	}
	if m.client != nil {
		err = errors.Join(err, m.client.e.close())
	}
	return err
}

// rounds measures all rounds. The variant that begins is another one in each.
func (m *measurement) rounds(all []*variant, tell func(done, of int)) error {
	of := m.config.Rounds * len(all)
	for round := range m.config.Rounds {
		for i := range all {
			v := all[(i+round)%len(all)]
			if err := m.stop.err(); err != nil {
				return err
			}
			if tell != nil {
				tell(round*len(all)+i, of)
			}
			if v.left != "" {
				continue
			}
			if err := m.once(v); err != nil {
				return fmt.Errorf("%v: %w", v, err)
			}
		}
	}
	return nil
}

// once measures a variant for one slice. A tenth of the slice goes before, to warm up.
func (m *measurement) once(v *variant) error {
	if v.workload == flood {
		f, err := m.server.flood(v, m.config.Outstanding, m.config.Slice)
		if err != nil {
			return v.leave(err)
		}
		v.add(f)
		return nil
	}
	if err := m.server.begin(v); err != nil {
		return v.leave(err)
	}
	f, err := m.paced(v.pace)
	cpu, wall, alone, endErr := m.server.end()
	if err := errors.Join(err, endErr); err != nil {
		return err
	}
	if alone {
		f.mine = 0
	}
	f.CPU = max(0, cpu-f.mine).Seconds() / wall.Seconds()
	v.add(f)
	return nil
}

// leave leaves the variant out where its way to wait does not suit; other errors it returns.
func (v *variant) leave(err error) error {
	if unsuitable := (*unsuitableError)(nil); errors.As(err, &unsuitable) {
		v.left = err.Error()
		return nil
	}
	return err
}

// paced measures the client while the server answers. Of the result the processors are missing.
func (m *measurement) paced(pace time.Duration) (f flooded, err error) {
	c, slice := m.client, m.config.Slice
	if _, err := c.play(pace, slice/10); err != nil {
		return f, err
	}
	before, err := cputime.Thread()
	if err != nil {
		return f, err
	}
	if err := m.server.mark(); err != nil {
		return f, err
	}
	n, err := c.play(pace, slice)
	if err != nil {
		return f, err
	}
	now, err := cputime.Thread()
	f = newFlooded(&c.hist, now.At.Sub(before.At))
	f.Messages, f.mine = n, now.Used()-before.Used()
	return f, err
}

// add books what came of a slice.
func (v *variant) add(f flooded) {
	v.messages += f.Messages
	v.p50, v.p99, v.p999 = append(v.p50, f.P50), append(v.p99, f.P99), append(v.p999, f.P999)
	v.rate, v.cpu = append(v.rate, f.Rate), append(v.cpu, f.CPU)
}

// row is what came of a variant.
func (v *variant) row() waitreport.Row {
	return waitreport.Row{Workload: v.workload, Way: v.how.name, Batch: v.batch, Pace: usec(v.pace), Messages: v.messages,
		P50: waitreport.EstimateOf(v.p50), P99: waitreport.EstimateOf(v.p99), P999: waitreport.EstimateOf(v.p999),
		Rate: waitreport.EstimateOf(v.rate), CPU: waitreport.EstimateOf(v.cpu)}
}

// describe says what client and server are.
func (c *Config) describe() string {
	if c.Server == nil {
		return fmt.Sprintf("%s to %s and back, client and server in one process", c.Devices[0], c.Devices[1])
	}
	return fmt.Sprintf("%s, looped back in the device, client and server in a process each", c.Devices[0])
}
