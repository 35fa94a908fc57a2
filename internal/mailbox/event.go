package mailbox

import (
	"context"
	"fmt"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
)

// Event is what is told of the mailbox for the record. It says what happened,
// never what is in a message.
type Event struct {
	Type   EventType
	Time   time.Time
	Detail string // in words
}

// EventType is one of a fixed set.
type EventType string

// What can happen.
const (
	Died         EventType = "messages died"
	EngineFailed EventType = "engine failed"
	EngineBack   EventType = "engine back"
)

// audit tells an event to whoever keeps a record. It never waits.
func (m *Mailbox) audit(what EventType, format string, args ...any) {
	_ = m.events.Publish(Event{Type: what, Time: time.Now(), Detail: fmt.Sprintf(format, args...)}) // a closed bus has no readers left
}

// watchPause is how often the engine is looked at.
const watchPause = 2 * time.Second

// watch is the Serve of readiness. It also tells of messages that died: the
// operator should look at them.
func (m *Mailbox) watch(ctx context.Context) error {
	died, failed := m.engine.Usage().Died, false
	for {
		err := m.examine()
		switch {
		case err != nil && !failed:
			m.audit(EngineFailed, "%v", err)
		case err == nil && failed:
			m.audit(EngineBack, "it takes messages again")
		}
		failed = err != nil
		if now := m.engine.Usage().Died; now > died {
			m.audit(Died, "%d messages were delivered too often", now-died)
			died = now
		}
		if err := flow.Sleep(ctx, watchPause); err != nil {
			return nil
		}
	}
}

// examine tells readiness how the engine does.
func (m *Mailbox) examine() error {
	examined, ok := m.engine.(Examined)
	if !ok {
		m.dependency.Up()
		return nil
	}
	err := examined.Health()
	if err != nil {
		m.dependency.Down("the mailbox refuses: "+reasonOf(err), fault.NextOf(err))
	} else {
		m.dependency.Up()
	}
	return err
}

func reasonOf(err error) string {
	if detail := fault.DetailOf(err); detail != "" {
		return detail
	}
	return fault.KindOf(err).Title()
}
