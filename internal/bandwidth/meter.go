package bandwidth

import (
	"sync/atomic"
	"time"

	"micronode/internal/flow"
)

// Settings are the limits of a node, in bytes a second; zero for none. A window of
// the schedule has limits of its own.
type Settings struct {
	Up, Down int64
	Schedule []Window
}

// Meter is the bytes that one node sends and receives. A nil one counts and
// bounds nothing.
type Meter struct {
	// set at construction
	up, down *Limiter

	settings atomic.Pointer[Settings]
}

// New makes a meter.
func New(inv *flow.Inventory, s Settings) *Meter {
	m := &Meter{}
	m.settings.Store(&s)
	m.up = newLimiter(inv, "node", "bandwidth_up", func(now time.Time) (int64, time.Time, time.Time) {
		limits := m.settings.Load().At(now)
		return limits.Up, limits.from, limits.until
	})
	m.down = newLimiter(inv, "node", "bandwidth_down", func(now time.Time) (int64, time.Time, time.Time) {
		limits := m.settings.Load().At(now)
		return limits.Down, limits.from, limits.until
	})
	return m
}

// Up is the limiter of what the node sends; Down of what it receives.
func (m *Meter) Up() *Limiter {
	if m == nil {
		return nil
	}
	return m.up
}

// Down is the limiter of what the node receives.
func (m *Meter) Down() *Limiter {
	if m == nil {
		return nil
	}
	return m.down
}

// Set changes the limits. Transfers under way go on with the new ones after the
// turn that they wait for.
func (m *Meter) Set(s Settings) {
	m.settings.Store(&s)
	m.up.forget()
	m.down.forget()
}

// Now returns the limits in force.
func (m *Meter) Now() Limits { return m.settings.Load().At(time.Now()) }
