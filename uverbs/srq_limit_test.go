package uverbs

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs/internal/fakekernel"
)

func TestSRQLimit(t *testing.T) {
	p := newPool(t, fakekernel.Device{})
	if n, err := p.srq.Limit(); n != 0 || err != nil {
		t.Errorf("limit %d, %v", n, err)
	}
	p.post(t, 1, 2, 3, 4)
	if err := p.srq.SetLimit(3); err != nil {
		t.Fatal(err)
	}
	if n, err := p.srq.Limit(); n != 3 || err != nil {
		t.Errorf("limit %d, %v", n, err)
	}
	event := func(want bool) {
		t.Helper()
		select {
		case e := <-p.dev.Events():
			if !want || e.Type != EventSRQLimitReached || e.SRQ != p.srq || !strings.Contains(e.String(), "SRQ limit reached on an SRQ of depth 8") {
				t.Errorf("event %v", e)
			}
		case <-time.After(map[bool]time.Duration{false: 10 * time.Millisecond, true: patience}[want]):
			if want {
				t.Error("no event")
			}
		}
	}
	p.send(t, 0, "three are left")
	event(false)
	p.send(t, 1, "two are left")
	event(true)
	p.send(t, 0, "one is left: that is no news")
	event(false)
	if n, err := p.srq.Limit(); n != 0 || err != nil {
		t.Errorf("limit %d, %v", n, err)
	}
	// Also at birth.
	s, err := p.pd.NewSRQ(&SRQOptions{Limit: 16})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := s.Limit(); n != 16 || err != nil {
		t.Errorf("limit %d, %v", n, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	says(t, "limit of a closed one", s.SetLimit(1), os.ErrClosed)
	_, err = s.Limit()
	says(t, "limit of a closed one", err, os.ErrClosed)
	s.RecvQueue().Recv(1, p.mr.Span(0, 1))
	says(t, "flush of a closed one", s.RecvQueue().Flush(), os.ErrClosed, "flush of an SRQ")
	says(t, "closed twice", s.Close(), os.ErrClosed)
}
