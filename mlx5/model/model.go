package model

import (
	"fmt"
	"sync"
	"time"
)

// Model is a fabric: devices that reach one another, and one clock.
type Model struct {
	mu      sync.Mutex
	devices []*Device
	start   time.Time
	now     time.Duration // since start, as of the call that runs

	gids map[[16]byte]*port // who answers to an address
	lids map[uint16]*port

	// ready are queue pairs to be looked at before the lock is given back.
	ready []*qp
	// sessions are completion queues that hold completions together for
	// compression, until the lock is given back.
	sessions []*cq

	clocks    []*clockPage
	clocksDue time.Duration

	faults     faults
	violations []string

	// observe is told of all that happens, nil if nobody is.
	observe func(Event)
	tap     Tap

	// Buffers of the request that is being carried.
	block     [wqeBytes]byte
	chunk     [64 << 10]byte
	src       []span
	dst       []span
	local     []segment
	receive   []segment
	entry     [128]byte
	grh       [grhBytes]byte
	recvBlock [maxRecvBytes * 2]byte
	inline    [inline64]byte
	word      [8]byte
}

// New makes a fabric of devices.
func New(devices ...DeviceConfig) (*Model, error) {
	m := &Model{start: time.Now(), gids: make(map[[16]byte]*port), lids: make(map[uint16]*port)}
	for i, c := range devices {
		if err := c.complete(i); err != nil {
			return nil, err
		}
		if m.Device(c.Name) != nil {
			return nil, fmt.Errorf("model: two devices are called %s", c.Name)
		}
		d, err := newDevice(m, c, i)
		if err != nil {
			return nil, err
		}
		m.devices = append(m.devices, d)
	}
	return m, nil
}

// Device returns the device of that name, nil if there is none.
func (m *Model) Device(name string) *Device {
	for _, d := range m.devices {
		if d.cfg.Name == name {
			return d
		}
	}
	return nil
}

// Devices returns all devices, in the order of New. The slice is the caller's.
func (m *Model) Devices() []*Device { return append([]*Device(nil), m.devices...) }

// Violations are the sentences about what programs did that neither kernel nor
// hardware refuse, and that a correct program does not do: a doorbell
// without its record, a completion queue whose entries were not initialised. At
// most 100 are kept.
func (m *Model) Violations() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.violations...)
}

func (m *Model) violation(format string, args ...any) {
	if len(m.violations) < 100 {
		m.violations = append(m.violations, fmt.Sprintf(format, args...))
	}
}

// enter takes the lock for a call from outside.
func (m *Model) enter() {
	m.mu.Lock()
	if m.now = time.Since(m.start); m.now >= m.clocksDue {
		m.updateClocks()
	}
}

// leave does the work that the call left and gives the lock back.
func (m *Model) leave() {
	for len(m.ready) > 0 || len(m.sessions) > 0 {
		for len(m.ready) > 0 {
			q := m.ready[0]
			// Move down, so that the slice keeps its memory.
			m.ready = m.ready[:copy(m.ready, m.ready[1:])]
			q.listed = false
			q.work()
		}
		for _, c := range m.sessions {
			c.endSession()
		}
		m.sessions = m.sessions[:0]
	}
	m.mu.Unlock()
}

// after runs f with the lock held when d has passed.
func (m *Model) after(d time.Duration, f func()) *time.Timer {
	return time.AfterFunc(d, func() {
		m.enter()
		defer m.leave()
		f()
	})
}
