package mailbox

import (
	"context"
	"fmt"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
)

// Event is an entry for the audit log. It says what happened, and never
// contains the body of a message.
type Event struct {
	Type   EventType
	Time   time.Time
	Detail string // in words
}

// EventType is one of a fixed set.
type EventType string

// The types of events.
const (
	Died            EventType = "messages died"
	Damaged         EventType = "messages damaged"
	EngineFailed    EventType = "engine failed"
	EngineRecovered EventType = "engine back"
)

// audit publishes an event for the audit log. It never waits.
func (m *Mailbox) audit(what EventType, format string, args ...any) {
	_ = m.events.Publish(Event{Type: what, Time: time.Now(), Detail: fmt.Sprintf(format, args...)}) // a closed bus has no readers left
}

// healthInterval is how often the engine is checked.
const healthInterval = 2 * time.Second

// watchHealth is the Serve of readiness. It also reports messages that died, or
// were damaged: the operator should look at them.
func (m *Mailbox) watchHealth(ctx context.Context) error {
	last, failed := m.engine.Usage(), false
	for {
		err := m.checkHealth()
		switch {
		case err != nil && !failed:
			m.audit(EngineFailed, "%v", err)
		case err == nil && failed:
			m.audit(EngineRecovered, "it accepts messages again")
		}
		failed = err != nil
		usage := m.engine.Usage()
		if usage.Damaged > last.Damaged {
			m.audit(Damaged, "the bodies of %d messages are damaged on disk; they are dead letters without a body", usage.Damaged-last.Damaged)
		}
		if died := usage.Died - last.Died - (usage.Damaged - last.Damaged); died > 0 {
			m.audit(Died, "%d messages reached their maximum number of deliveries", died)
		}
		last = usage
		if err := flow.Sleep(ctx, healthInterval); err != nil {
			return nil
		}
	}
}

// checkHealth updates readiness with the health of the engine.
func (m *Mailbox) checkHealth() error {
	checker, ok := m.engine.(HealthChecker)
	if !ok {
		m.dependency.Up()
		return nil
	}
	err := checker.Health()
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
