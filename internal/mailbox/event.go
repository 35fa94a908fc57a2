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
	last, failed, interval := m.engine.Usage(), false, healthInterval
	if _, ok := m.engine.(Prober); ok {
		interval = probeInterval
	}
	for {
		err := m.engineHealth()
		if err == nil {
			err = m.probe(ctx)
		}
		m.reportHealth(err)
		m.countCalls()
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
		if err := flow.Sleep(ctx, interval); err != nil {
			return nil
		}
	}
}

// A probe of an engine on other machines begins once a second, and has less than
// that time: so both its end and its return are seen within two seconds.
const (
	probeInterval = 100 * time.Millisecond // after a probe
	probeTimeout  = 800 * time.Millisecond
	probePause    = time.Second // between the beginnings of two probes
)

// probe checks whether an engine on other machines accepts a message. Between two
// probes, the result of the last one holds.
func (m *Mailbox) probe(ctx context.Context) error {
	prober, ok := m.engine.(Prober)
	if !ok || time.Since(m.probedAt) < probePause {
		return m.probeErr
	}
	m.probedAt = time.Now()
	limited, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if err := prober.Probe(limited); ctx.Err() == nil {
		m.probeErr = err
	}
	return m.probeErr
}

// countCalls adds to the metrics what was called since the last time.
func (m *Mailbox) countCalls() {
	prober, ok := m.engine.(Prober)
	if !ok {
		return
	}
	const op = "engine"
	now := prober.Calls()
	m.instruments.BackoffRetries.WithLabelValues(op).Add(float64(now.Retries - m.counted.Retries))
	m.instruments.IOTimeouts.WithLabelValues(op).Add(float64(now.Timeouts - m.counted.Timeouts))
	m.instruments.IOErrors.WithLabelValues(op).Add(float64(now.Failures - m.counted.Failures))
	m.counted = now
}

// engineHealth is what the engine says of itself.
func (m *Mailbox) engineHealth() error {
	if checker, ok := m.engine.(HealthChecker); ok {
		return checker.Health()
	}
	return nil
}

// reportHealth updates readiness with the health of the engine.
func (m *Mailbox) reportHealth(err error) {
	if err == nil {
		m.awaySince = time.Time{}
		m.dependency.Up()
		return
	}
	if m.awaySince.IsZero() {
		m.awaySince = time.Now()
	}
	what := "the mailbox refuses"
	if prober, ok := m.engine.(Prober); ok {
		what = fmt.Sprintf("NATS at %s has not accepted messages since %s", prober.Address(), m.awaySince.UTC().Format(time.TimeOnly+" UTC"))
	}
	m.dependency.Down(what+": "+reasonOf(err), fault.NextOf(err))
}

func reasonOf(err error) string {
	if detail := fault.DetailOf(err); detail != "" {
		return detail
	}
	return fault.KindOf(err).Title()
}
