package supervise

import (
	"context"

	"micronode/fault"
)

// Service is something that runs for as long as the node does, or once.
type Service struct {
	Service string // the metrics label: node, gateway, overlay, …
	Name    string // unique in the supervisor; also the "kind" of its tasks
	Stage   string

	// Serve does the work. Returning nil means that it has finished, and it is
	// not started again. An error, a panic and runtime.Goexit are failures, and
	// Restart decides; http.ErrServerClosed is an error like any other, so a
	// server that was asked to stop turns it into nil. It must return soon
	// after its context ends.
	Serve func(ctx context.Context) error

	// Drain asks Serve to finish and return by itself: it closes the listener,
	// or the queue. Serve's context then stays valid until the stage's
	// deadline, which is also that of Drain's own context. Without a Drain,
	// Serve's context ends when the drain reaches its stage. It is called once,
	// and only if the service is running or about to be restarted.
	Drain func(ctx context.Context) error

	Restart Restart // the zero value stands for that of the node's own services
}

// Add registers a service. All are added before Run.
func (s *Supervisor) Add(spec Service) error {
	const op = "supervise.add"
	if spec.Serve == nil {
		return malformed(op, "Set Serve to the function that does the work.", "service %q has no Serve", spec.Name)
	}
	return s.add(op, &unit{spec: spec}, 1)
}

// add checks what services and pools have in common and registers the unit.
func (s *Supervisor) add(op string, u *unit, n int) error {
	if u.spec.Name == "" || u.spec.Service == "" {
		return malformed(op, "Set Name to a name of its own and Service to the metrics label.",
			"a service named %q with the label %q", u.spec.Name, u.spec.Service)
	}
	if u.spec.Restart == (Restart{}) {
		u.spec.Restart = defaultRestart
	}
	if err := u.spec.Restart.check(op, u.spec.Name); err != nil {
		return err
	}
	st, err := s.find(op, u.spec.Stage)
	if err != nil {
		return err
	}
	u.sup, u.stage = s, st
	for i := range n {
		u.slots = append(u.slots, &slot{unit: u, index: i})
	}
	return s.register(op, u)
}

// register adds the unit to its stage, unless Run has been called or its name
// is taken.
func (s *Supervisor) register(op string, u *unit) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ran {
		return fault.New(op, fault.Conflict, "%q was added after Run", u.spec.Name).
			Advise("Add every service before Run; what comes and goes later belongs into a Group.")
	}
	if s.units[u.spec.Name] != nil {
		return malformed(op, "Give each service and pool a name of its own.", "the name %q is used twice", u.spec.Name)
	}
	s.units[u.spec.Name] = u
	u.stage.units = append(u.stage.units, u)
	u.total = s.totalOf(u.spec.Service, u.spec.Name)
	u.refresh()
	return nil
}
