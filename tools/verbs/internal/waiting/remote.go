package waiting

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/goverbs/goverbs/tools/internal/printable"
	"github.com/goverbs/goverbs/uverbs"
)

// remoteServer serves in another process, to which it speaks in lines: a word and arguments,
// answered by "ok" and what was asked for, or "error" and a sentence.
//
//	open DEVICE DEPTH    make the end; says its address
//	connect ADDRESS      connect it
//	begin WAY BATCH      begin to answer
//	mark                 begin to count processor time
//	end                  end answering; says processor time and time in ns
//	flood WAY BATCH OUTSTANDING NS    write, and say what came of it
//
// "unsuitable" and a sentence say that the way to wait does not suit the machine or the device.
type remoteServer struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	stop *stopper

	answers chan string
	ended   error // why there are no more answers; after answers is closed
}

// startRemote starts the server and connects it with the client's end.
func startRemote(stop *stopper, c *Config, e *end) (*remoteServer, error) {
	s := &remoteServer{cmd: exec.Command(c.Server[0], c.Server[1:]...), stop: stop, answers: make(chan string, 1)}
	var errs strings.Builder
	s.cmd.Stderr = &errs
	in, err := s.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	s.in = in
	go s.listen(out, func() error {
		if err := s.cmd.Wait(); err != nil {
			return fmt.Errorf("%w %s", err, strings.TrimSpace(errs.String()))
		}
		return nil
	})
	if err := s.connect(c, e); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// listen takes what the server says until it is gone; wait says why.
func (s *remoteServer) listen(out io.Reader, wait func() error) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "failed "); ok {
			s.stop.cancel(fmt.Errorf("the server: %s", text))
			continue
		}
		s.answers <- lines.Text()
	}
	if s.ended = wait(); s.ended != nil {
		s.ended = fmt.Errorf("the server: %w", s.ended)
		s.stop.cancel(s.ended)
	}
	close(s.answers)
}

func (s *remoteServer) connect(c *Config, e *end) error {
	text, err := s.ask("open %s %d", c.Devices[1], c.Outstanding)
	if err != nil {
		return err
	}
	var peer address
	if err := json.Unmarshal([]byte(text), &peer); err != nil {
		return fmt.Errorf("the server's address is %q: %w", text, err)
	}
	mine, err := json.Marshal(e.address())
	if err != nil {
		return err
	}
	if _, err := s.ask("connect %s", mine); err != nil {
		return err
	}
	return e.connect(s.stop.ctx, peer)
}

// ask has the server do something.
func (s *remoteServer) ask(format string, args ...any) (string, error) {
	if _, err := fmt.Fprintf(s.in, format+"\n", args...); err != nil {
		return "", fmt.Errorf("tell the server: %w", err)
	}
	// Also when ctx has ended: the server answers at once, and what it does is short.
	line, ok := <-s.answers
	if !ok {
		return "", errors.Join(s.ended, errors.New("the server went away"))
	}
	if text, ok := strings.CutPrefix(line, "error "); ok {
		return "", errors.New(text)
	}
	if text, ok := strings.CutPrefix(line, "unsuitable "); ok {
		return "", &unsuitableError{errors.New(text)}
	}
	text, ok := strings.CutPrefix(line, "ok")
	if !ok {
		return "", fmt.Errorf("the server says %q", line)
	}
	return strings.TrimSpace(text), nil
}

func (s *remoteServer) begin(v *variant) error {
	_, err := s.ask("begin %s %d", v.how.name, v.batch)
	return err
}

func (s *remoteServer) mark() error {
	_, err := s.ask("mark")
	return err
}

func (s *remoteServer) end() (cpu, wall time.Duration, alone bool, err error) {
	text, err := s.ask("end")
	if err == nil {
		if _, scanErr := fmt.Sscan(text, (*int64)(&cpu), (*int64)(&wall)); scanErr != nil {
			err = fmt.Errorf("the server says %q: %w", text, scanErr)
		}
	}
	return cpu, wall, true, err
}

func (s *remoteServer) flood(v *variant, outstanding int, length time.Duration) (f flooded, err error) {
	text, err := s.ask("flood %s %d %d %d", v.how.name, v.batch, outstanding, length)
	if err == nil {
		err = json.Unmarshal([]byte(text), &f)
	}
	return f, err
}

func (s *remoteServer) close() error {
	s.in.Close()
	for range s.answers {
	}
	return s.ended
}

// Serve is the program of the server's process: it obeys the lines of in until their end.
func Serve(open func(name string) (*uverbs.Device, error), in io.Reader, out io.Writer) (err error) {
	w := &lockedWriter{w: out}
	o := &obedient{open: open}
	o.server.fail = func(err error) { fmt.Fprintf(w, "failed %s\n", printable.Error(err)) }
	for lines := bufio.NewScanner(in); lines.Scan(); {
		text, err := o.obey(lines.Text())
		if unsuitable := (*unsuitableError)(nil); errors.As(err, &unsuitable) {
			fmt.Fprintf(w, "unsuitable %s\n", printable.Error(err))
			continue
		}
		if err != nil {
			fmt.Fprintf(w, "error %s\n", printable.Error(err))
			continue
		}
		fmt.Fprintf(w, "ok %s\n", text)
	}
	if o.server.e != nil {
		err = o.server.close()
	}
	return err
}

// lockedWriter writes one line after another.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// obedient is the server in its own process.
type obedient struct {
	open   func(name string) (*uverbs.Device, error)
	server localServer
}

func (o *obedient) obey(line string) (string, error) {
	word, rest, _ := strings.Cut(line, " ")
	var name string
	var n, outstanding int
	var length time.Duration
	var scan error
	switch word {
	case "open", "begin":
		_, scan = fmt.Sscan(rest, &name, &n)
	case "flood":
		_, scan = fmt.Sscan(rest, &name, &n, &outstanding, (*int64)(&length))
	}
	if scan != nil {
		return "", fmt.Errorf("%q: %w", line, scan)
	}
	if word != "open" && o.server.e == nil {
		return "", fmt.Errorf("%q before open", line)
	}
	switch word {
	case "open":
		dev, err := o.open(name)
		if err != nil {
			return "", err
		}
		if o.server.e, err = openEnd(dev, n, true); err != nil {
			return "", err
		}
		text, err := json.Marshal(o.server.e.address())
		return string(text), err
	case "connect":
		var peer address
		if err := json.Unmarshal([]byte(rest), &peer); err != nil {
			return "", err
		}
		return "", o.server.e.connect(context.Background(), peer)
	case "begin":
		h, err := findWay(name)
		if err == nil {
			err = o.server.begin(&variant{how: h, batch: n})
		}
		return "", err
	case "flood":
		h, err := findWay(name)
		if err != nil {
			return "", err
		}
		f, err := o.server.flood(&variant{workload: flood, how: h, batch: n}, outstanding, length)
		if err != nil {
			return "", err
		}
		text, err := json.Marshal(f)
		return string(text), err
	case "mark":
		return "", o.server.mark()
	case "end":
		cpu, wall, _, err := o.server.end()
		return fmt.Sprintf("%d %d", cpu, wall), err
	}
	return "", fmt.Errorf("%q is nothing to do", line)
}
