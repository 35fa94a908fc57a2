package amnesia

import (
	"context"
	"slices"
	"sync"
	"time"
)

// DefaultPurgeInterval is the default of amnesia.purge_interval_ms.
const DefaultPurgeInterval = 30 * time.Second

// Purger calls, on a timer, the registered functions of components that keep
// more than they need: caches that hold what has expired, memory that was freed
// and not returned to the system.
type Purger struct {
	every time.Duration // set at construction

	mu     sync.Mutex
	purges []*purge // guarded by mu
}

type purge struct{ forget func() }

// NewPurger makes a purger for the interval. Zero means no timer: the
// registered functions run by Purge only.
func NewPurger(every time.Duration) *Purger { return &Purger{every: every} }

// Register adds a function that purges something, and returns a function that
// removes it again. The function must be short and must not wait: they run one
// after the other.
func (p *Purger) Register(forget func()) (remove func()) {
	one := &purge{forget}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.purges = append(p.purges, one)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.purges = slices.DeleteFunc(p.purges, func(other *purge) bool { return other == one })
	}
}

// Purge calls every function once, now, in the order in which they were
// registered. The node does so once more at its end.
func (p *Purger) Purge() {
	p.mu.Lock()
	purges := slices.Clone(p.purges)
	p.mu.Unlock()
	for _, one := range purges {
		one.forget()
	}
}

// Serve purges once in every interval until the context ends.
func (p *Purger) Serve(ctx context.Context) error {
	if p.every <= 0 {
		<-ctx.Done()
		return nil
	}
	ticker := time.NewTicker(p.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			p.Purge()
		}
	}
}
