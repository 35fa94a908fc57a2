package pack

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
)

// mount is the state of one file: which version of it is served, and why the
// newest is not. All of it is guarded by Mounts.scanLane.
type mount struct {
	// set at construction
	path, file, stem string
	configured       string
	kind             kind

	state     fileState  // as the file was last seen
	changedAt time.Time  // when that state was first seen
	version   *version   // nil if none is served
	candidate *candidate // the newest, while it is being verified
	refused   fileState  // a state that was refused for good
	retryAt   time.Time  // when to retry after a transient failure
	pending   bool       // something newer than the version may follow
	err       error      // why the newest is not served
}

func newMount(s foundFile) *mount {
	return &mount{
		path: s.path, file: s.file, stem: stemOf(s.file), kind: kindOf(s.file), configured: s.configured,
		pending: true, err: verifying(s.file), // until the first try
	}
}

// mountDeps is what a mount needs to advance.
type mountDeps struct {
	spec     Spec
	eager    bool // try files at once that may be incomplete
	open     func(ctx context.Context, t *candidate) (*version, error)
	retire   func(*version)
	schedule func(time.Duration) // requests another scan within that time
}

// advance brings a mount as far as it gets without waiting. Its only error is
// the end of ctx.
func (m *mount) advance(ctx context.Context, s foundFile, w mountDeps) error {
	now := time.Now()
	if m.version != nil && !m.version.intact() {
		m.stopServing(w) // it can no longer be read, whatever comes next
	}
	if s.err != nil {
		m.handleMissing(s.err, w)
		return nil
	}
	if m.state != s.state || m.changedAt.IsZero() {
		m.state, m.changedAt, m.retryAt = s.state, now, time.Time{}
	}
	if m.candidate != nil && m.candidate.state.withoutChangeTime() != m.state.withoutChangeTime() {
		m.cancelCandidate()
	}
	switch {
	case m.version != nil && m.version.state.withoutChangeTime() == m.state.withoutChangeTime():
		m.markServing()
		return nil
	case m.err != nil && m.refused == m.state:
		return nil
	case m.err != nil && !m.pending && now.Before(m.retryAt):
		w.schedule(m.retryAt.Sub(now))
		return nil
	case !w.eager && m.quietTime(now, w) > 0:
		m.pending, m.err = true, writtenFault(m.file)
		w.schedule(m.quietTime(now, w))
		return nil
	}
	return m.try(ctx, now, w)
}

// quietTime is how long the file still has to stay unchanged. One that was last
// written to long ago was moved here, complete.
func (m *mount) quietTime(now time.Time, w mountDeps) time.Duration {
	if age := now.Sub(time.Unix(0, m.state.modified)); age >= w.spec.QuietPeriod {
		return 0
	}
	return w.spec.QuietPeriod - now.Sub(m.changedAt)
}

// try does one step from a file to a version.
func (m *mount) try(ctx context.Context, now time.Time, w mountDeps) error {
	if m.candidate == nil {
		m.candidate = newCandidate(m.path, m.file, m.kind, m.state, w.spec)
	}
	done, err := m.candidate.step(ctx, w.spec.HashTime)
	if err == nil && !done {
		m.pending, m.err = true, verifying(m.file)
		w.schedule(0)
		return nil
	}
	var fresh *version
	if err == nil {
		fresh, err = w.open(ctx, m.candidate)
	}
	if ctx.Err() != nil && err != nil {
		return flow.Ended(ctx, opMount) // the next scan repeats the step
	}
	if err != nil {
		m.refuse(now, err, w)
		return nil
	}
	m.candidate = nil // the version owns the file now
	m.stopServing(w)
	m.version = fresh
	m.markServing()
	return nil
}

// refuse notes why the newest is not served. A fault of the file itself is not
// retried before the file changes; anything else may be transient.
func (m *mount) refuse(now time.Time, err error, w mountDeps) {
	m.cancelCandidate()
	m.err, m.pending = err, false
	switch {
	case errors.Is(err, errChanged), w.eager && m.quietTime(now, w) > 0:
		m.err, m.pending = writtenFault(m.file), true
		w.schedule(max(m.quietTime(now, w), debounce))
	case isPermanent(err):
		m.refused = m.state
	default:
		m.retryAt = now.Add(w.spec.Reconcile)
		w.schedule(w.spec.Reconcile)
	}
}

// isPermanent reports whether a failure is one of the file, and not a transient
// one. A timed-out hash counts as permanent: to hash a large file again and
// again because the disk is slow would make it slower still.
func isPermanent(err error) bool {
	switch fault.KindOf(err) {
	case fault.Malformed, fault.RatioCap, fault.BodyTooLarge, fault.IntegrityFail, fault.Conflict:
		return true
	default:
		return errors.Is(err, errTooSlow)
	}
}

// handleMissing handles a file whose stat fails. One that is gone is unmounted;
// of one that is there but unreadable, the old version stays in service.
func (m *mount) handleMissing(reason error, w mountDeps) {
	m.cancelCandidate()
	m.pending, m.state, m.changedAt = false, fileState{}, time.Time{}
	if errors.Is(reason, fs.ErrNotExist) {
		m.stopServing(w)
		m.err = absent(m.file, reason)
		return
	}
	m.err = unreadable(m.file, reason)
}

// markServing notes that the newest is served.
func (m *mount) markServing() {
	m.cancelCandidate()
	m.pending, m.err = false, nil
	m.refused, m.retryAt = fileState{}, time.Time{}
}

// stopServing stops serving the version.
func (m *mount) stopServing(w mountDeps) {
	if m.version != nil {
		w.retire(m.version)
		m.version = nil
	}
}

// cancelCandidate ends a verification that is no longer needed.
func (m *mount) cancelCandidate() {
	if m.candidate != nil {
		m.candidate.close()
		m.candidate = nil
	}
}

// entry is the table entry for Open.
func (m *mount) entry() *entry {
	if m.version != nil {
		return &entry{version: m.version}
	}
	return &entry{err: notReady(m.err)}
}

// status is the status for State. A clash is the reason why the pack cannot be
// opened by its stem; it is reported only if there is no worse error.
func (m *mount) status(clash error) Status {
	s := Status{
		Name: m.stem, File: m.file, Path: m.path, Kind: string(m.kind),
		Pending: m.pending, Err: m.err, Size: m.state.size, Condition: Bad,
	}
	if m.state.modified != 0 {
		s.Modified = time.Unix(0, m.state.modified)
	}
	if m.pending && m.version == nil {
		s.Condition = Waiting
	}
	if v := m.version; v != nil {
		s.Size, s.Modified = v.state.size, time.Unix(0, v.state.modified)
		s.Version, s.ETag, s.Verified, s.Checked, s.Tiles = v.id, v.etag, v.verified, v.checked, v.info.tiles()
		if m.pending {
			s.Err = nil // the served version is in order, and the newer one is still being verified
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
