package pack

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
)

// mount is the life of one file: which version of it is served, and what stands
// between the newest and being served. All of it is owned by whoever has the
// turn of Mounts.
type mount struct {
	// set at construction
	path, file, stem string
	origin           string
	kind             kind

	look    look      // as the file was last seen
	moved   time.Time // when it began to look like that
	version *version  // nil if none is served
	trial   *trial    // the newest, while it is being verified
	refused look      // what was tried and is not worth another try
	again   time.Time // when to try once more after a passing failure
	pending bool      // something newer than the version may come of it
	err     error     // why the newest is not served
}

func newMount(s sighting) *mount {
	return &mount{
		path: s.path, file: s.file, stem: stemOf(s.file), kind: kindOf(s.file), origin: s.origin,
		pending: true, err: verifying(s.file), // until somebody gets round to it
	}
}

// workshop is what a mount needs to get further.
type workshop struct {
	spec   Spec
	eager  bool // try at once what may not be whole yet
	open   func(ctx context.Context, t *trial) (*version, error)
	retire func(*version)
	due    func(time.Duration) // asks for another look within that time
}

// advance brings a mount as far as it gets without waiting. Its only error is
// the end of ctx.
func (m *mount) advance(ctx context.Context, s sighting, w workshop) error {
	now := time.Now()
	if m.version != nil && !m.version.intact() {
		m.drop(w) // it cannot be read any more, whatever comes next
	}
	if s.err != nil {
		m.lose(s.err, w)
		return nil
	}
	if m.look != s.look || m.moved.IsZero() {
		m.look, m.moved, m.again = s.look, now, time.Time{}
	}
	if m.trial != nil && m.trial.look.content() != m.look.content() {
		m.abandon()
	}
	switch {
	case m.version != nil && m.version.look.content() == m.look.content():
		m.settle()
		return nil
	case m.err != nil && m.refused == m.look:
		return nil
	case m.err != nil && !m.pending && now.Before(m.again):
		w.due(m.again.Sub(now))
		return nil
	case !w.eager && m.wait(now, w) > 0:
		m.pending, m.err = true, settling(m.file)
		w.due(m.wait(now, w))
		return nil
	}
	return m.try(ctx, now, w)
}

// wait is for how long the file still has to be left alone. One that was last
// written to long ago was moved here, whole.
func (m *mount) wait(now time.Time, w workshop) time.Duration {
	if age := now.Sub(time.Unix(0, m.look.modified)); age >= w.spec.Settle {
		return 0
	}
	return w.spec.Settle - now.Sub(m.moved)
}

// try does a step of what leads from a file to a version.
func (m *mount) try(ctx context.Context, now time.Time, w workshop) error {
	if m.trial == nil {
		m.trial = newTrial(m.path, m.file, m.kind, m.look, w.spec)
	}
	done, err := m.trial.step(ctx, w.spec.HashTime)
	if err == nil && !done {
		m.pending, m.err = true, verifying(m.file)
		w.due(0)
		return nil
	}
	var fresh *version
	if err == nil {
		fresh, err = w.open(ctx, m.trial)
	}
	if ctx.Err() != nil && err != nil {
		return flow.Ended(ctx, opMount) // the step is done again by whoever has the next turn
	}
	if err != nil {
		m.refuse(now, err, w)
		return nil
	}
	m.trial = nil // the version has its file now
	m.drop(w)
	m.version = fresh
	m.settle()
	return nil
}

// refuse notes why the newest is not served. What is wrong with the file itself
// is not tried again before the file is another; anything else may pass.
func (m *mount) refuse(now time.Time, err error, w workshop) {
	m.abandon()
	m.err, m.pending = err, false
	switch {
	case errors.Is(err, errMoved), w.eager && m.wait(now, w) > 0:
		m.err, m.pending = settling(m.file), true
		w.due(max(m.wait(now, w), debounce))
	case lasting(err):
		m.refused = m.look
	default:
		m.again = now.Add(w.spec.Reconcile)
		w.due(w.spec.Reconcile)
	}
}

// lasting tells whether a failure is one of the file, and not of the day. To
// hash a large file again and again because the disk is slow would make it
// slower still.
func lasting(err error) bool {
	switch fault.KindOf(err) {
	case fault.Malformed, fault.RatioCap, fault.BodyTooLarge, fault.IntegrityFail, fault.Conflict:
		return true
	default:
		return errors.Is(err, errTooSlow)
	}
}

// lose deals with a file that cannot be seen. One that is gone is unmounted; of
// one that is there and cannot be looked at, the old version is good enough.
func (m *mount) lose(reason error, w workshop) {
	m.abandon()
	m.pending, m.look, m.moved = false, look{}, time.Time{}
	if errors.Is(reason, fs.ErrNotExist) {
		m.drop(w)
		m.err = absent(m.file, reason)
		return
	}
	m.err = unreadable(m.file, reason)
}

// settle notes that the newest is served.
func (m *mount) settle() {
	m.abandon()
	m.pending, m.err = false, nil
	m.refused, m.again = look{}, time.Time{}
}

// drop stops serving the version.
func (m *mount) drop(w workshop) {
	if m.version != nil {
		w.retire(m.version)
		m.version = nil
	}
}

// abandon ends a verification that nobody wants any more.
func (m *mount) abandon() {
	if m.trial != nil {
		m.trial.close()
		m.trial = nil
	}
}

// entry is what Open finds.
func (m *mount) entry() *entry {
	if m.version != nil {
		return &entry{version: m.version}
	}
	return &entry{err: notReady(m.err)}
}

// status is what State says. A clash is the reason why the pack cannot be asked
// for by its stem; it is said only where nothing worse is.
func (m *mount) status(clash error) Status {
	s := Status{
		Name: m.stem, File: m.file, Path: m.path, Kind: string(m.kind),
		Pending: m.pending, Err: m.err, Size: m.look.size, Condition: Bad,
	}
	if m.look.modified != 0 {
		s.Modified = time.Unix(0, m.look.modified)
	}
	if m.pending && m.version == nil {
		s.Condition = Waiting
	}
	if v := m.version; v != nil {
		s.Size, s.Modified = v.look.size, time.Unix(0, v.look.modified)
		s.Version, s.ETag, s.Verified, s.Checked, s.Tiles = v.id, v.etag, v.verified, v.checked, v.about.tiles()
		if m.pending {
			s.Err = nil // what is served is in order, and what comes is on its way
		}
		if s.Err == nil {
			s.Err = clash
		}
		s.Condition = Degraded
		if s.Err == nil {
			s.Condition = Serving
		}
	}
	return s
}
