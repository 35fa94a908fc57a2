package registry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/observe"
	"micronode/internal/registry/journal"
)

// storageHealth sets in readiness whether the registry can accept writes, and whether
// it can read its log. The head is served from memory whatever the storage does.
type storageHealth struct {
	// set at construction
	writes *observe.Dependency
	reads  *observe.Dependency

	mu            sync.Mutex
	busySince     time.Time            // when the committer's current call to the storage began; zero if there is none
	otherCalls    map[string]time.Time // when the calls of other tasks began, by what they do
	slowAfter     time.Duration        // how long the committer may wait; zero before the first update
	stalledAfter  time.Duration        // how long other tasks may wait
	lastWriteErr  error                // the result of the last write
	writesEnded   uint64               // how many writes have ended
	engineErr     error                // why the engine on other machines would not accept a write
	engine        string               // its name, and where it is
	engineSince   time.Time            // since when
	readErr       error                // why that engine does not read the log
	readSince     time.Time            // since when
	damage        error                // damage to the log itself; it is never cleared
	derivedDamage error                // damage to data that can be rebuilt from the log
}

// callStarted records that a call of the committer began, and returns when.
func (s *storageHealth) callStarted() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busySince = time.Now()
	return s.busySince
}

// callEnded records that a call of the committer has ended, whatever its result.
func (s *storageHealth) callEnded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busySince = time.Time{}
}

// trackCall records that a call of another task than the committer began, and returns
// a function that records its end.
func (s *storageHealth) trackCall(what string) (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.otherCalls == nil {
		s.otherCalls = map[string]time.Time{}
	}
	s.otherCalls[what] = time.Now()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.otherCalls, what)
	}
}

// writeEnded records the result of a write. A lost race is no failure.
func (s *storageHealth) writeEnded(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busySince = time.Time{}
	if errors.Is(err, fault.ChainMismatch) {
		err = nil
	}
	s.lastWriteErr = err
	s.writesEnded++
	s.updateLocked()
}

// setEngine records whether the engine would accept a write.
func (s *storageHealth) setEngine(engine string, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && s.engineErr == nil {
		s.engineSince = now
	}
	s.engine, s.engineErr = engine, err
	s.updateLocked()
}

// setEngineReads records whether the engine reads the log.
func (s *storageHealth) setEngineReads(engine string, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && s.readErr == nil {
		s.readSince = now
	}
	s.engine, s.readErr = engine, err
	s.updateLocked()
}

// setDamage records that the log is damaged.
func (s *storageHealth) setDamage(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.damage = err
	s.updateLocked()
}

// setDerivedDamage records damage to data that can be rebuilt from the log; nil clears
// it.
func (s *storageHealth) setDerivedDamage(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.derivedDamage = err
	s.updateLocked()
}

// damageFound returns the damage to the log, if there is any.
func (s *storageHealth) damageFound() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.damage
}

// lastWrite returns the number of the last write, and its error.
func (s *storageHealth) lastWrite() (last uint64, failed error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writesEnded, s.lastWriteErr
}

// clearFailure clears the error of the last write, unless another write has ended since
// lastWrite was read: the result of that one is newer.
func (s *storageHealth) clearFailure(last uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writesEnded == last {
		s.lastWriteErr = nil
	}
}

// update sets the bounds and updates readiness. A commit that has waited for longer than
// slowAfter makes writes not ready, and so does a call of another task that has waited
// for longer than stalledAfter; zero is no bound.
func (s *storageHealth) update(slowAfter, stalledAfter time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slowAfter, s.stalledAfter = slowAfter, stalledAfter
	s.updateLocked()
}

// updateLocked updates readiness. The lock is held until readiness is set, so that of
// two updates the later one wins.
func (s *storageHealth) updateLocked() {
	switch { // with damage, reads stay ready: what is damaged is not served, and the rest is
	case s.readErr != nil:
		s.reads.Down(fmt.Sprintf("%s has not answered reads since %s: %s", s.engine, timeOfDay(s.readSince), fault.DetailOf(s.readErr)),
			fault.NextOf(s.readErr)+" The head and the names are still served, from memory; older versions and proofs are not.")
	case s.damage != nil:
		s.reads.UpWithRemark(fault.DetailOf(s.damage), "Compare with another copy, then restore the folder from it; docs/registry.md says how.")
	case s.derivedDamage != nil:
		s.reads.UpWithRemark(fault.DetailOf(s.derivedDamage), fault.NextOf(s.derivedDamage))
	default:
		s.reads.Up()
	}
	var stalled string // the call that has taken too long: a commit, or the longest of the others
	var waited time.Duration
	for what, since := range s.otherCalls {
		if took := time.Since(since); s.stalledAfter > 0 && took > max(s.stalledAfter, waited) {
			stalled, waited = what, took
		}
	}
	if took := time.Since(s.busySince); s.slowAfter > 0 && !s.busySince.IsZero() && took > s.slowAfter {
		stalled, waited = "a commit", took
	}
	switch {
	case s.damage != nil:
		s.writes.Down(fault.DetailOf(s.damage), "What is not damaged is served. Restore the log before the next write.")
	case s.engineErr != nil:
		s.writes.Down(fmt.Sprintf("%s has not accepted writes since %s: %s", s.engine, timeOfDay(s.engineSince), fault.DetailOf(s.engineErr)),
			fault.NextOf(s.engineErr))
	case s.lastWriteErr != nil:
		s.writes.Down("the storage failed: "+fault.DetailOf(s.lastWriteErr), fault.NextOf(s.lastWriteErr))
	case stalled != "":
		s.writes.Down(fmt.Sprintf("the storage call %s has taken %s", stalled, waited.Round(100*time.Millisecond)),
			"Check the disk, or the etcd cluster.")
	case s.busySince.IsZero():
		s.writes.Up()
	}
}

func timeOfDay(t time.Time) string { return t.UTC().Format(time.TimeOnly + " UTC") }

// healthTick is how often the storage is checked.
const healthTick = 100 * time.Millisecond

// A probe of an engine on other machines begins once a second, and has less than that
// time: so both its end and its return are seen within two seconds.
const (
	engineProbeTimeout = 800 * time.Millisecond
	engineProbePause   = time.Second // between the beginnings of two
)

// runStorageHealth is the Serve of the task "registry gate": it detects slow writes,
// probes a storage that failed, counts retries, and expires proposals.
func (r *Registry) runStorageHealth(ctx context.Context) error {
	counted := remoteCalls(r.journal).Retries
	for probe := 0; ; probe++ {
		if flow.Sleep(ctx, healthTick) != nil {
			return nil
		}
		if probe%10 == 0 {
			now := remoteCalls(r.journal).Retries
			r.metrics.instruments.BackoffRetries.WithLabelValues("storage").Add(float64(now - counted))
			counted = now
			r.metrics.openProposals.Set(float64(r.pending.expire(r.now())))
			if r.probeEngine(ctx) { // otherwise the next two would wait for it, and its return would be seen late
				r.probe(ctx)
				r.removeDropped(ctx)
			}
		}
		storage := r.settings.Load().Storage
		r.health.update(storage.Slow, storage.Timeout)
	}
}

// probeEngine reports whether an engine on other machines would accept a write, to the
// caller and in readiness. Other storage is probed when a write has failed.
func (r *Registry) probeEngine(ctx context.Context) bool {
	prober, ok := r.journal.(journal.Prober)
	if !ok {
		return true
	}
	limited, cancel := context.WithTimeout(ctx, engineProbeTimeout)
	defer cancel()
	err := prober.Probe(limited)
	if ctx.Err() == nil {
		r.health.setEngine(prober.Engine(), err, r.now())
	}
	return err == nil
}

// runReadHealth is the Serve of the task "registry reach", of a registry on an engine
// on other machines: it reads the end of the log once a second, so that readiness says
// whether versions can be read. It is a task of its own, because both probes may take
// their whole time, and each result is due within two seconds.
func (r *Registry) runReadHealth(ctx context.Context) error {
	engine := r.journal.(journal.Prober).Engine()
	for {
		began := time.Now()
		limited, cancel := context.WithTimeout(ctx, engineProbeTimeout)
		_, err := r.journal.Head(limited)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, fault.NotFound) { // the log is empty
			err = nil
		}
		r.health.setEngineReads(engine, err, r.now())
		if flow.Sleep(ctx, max(healthTick, engineProbePause-time.Since(began))) != nil {
			return nil
		}
	}
}

// probe checks whether a failed storage works again. It appends an empty batch, which
// leaves no trace; a storage that refuses permanently refuses that, too. When it
// succeeds, the committer catches up, so that readers see the outcome of the failed
// write without waiting for the next commit.
func (r *Registry) probe(ctx context.Context) {
	last, failed := r.health.lastWrite()
	if failed == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.settings.Load().Storage.Timeout)
	defer cancel()
	err := r.journal.Append(ctx, r.view.Load().expectedHead(), nil)
	if err != nil && !errors.Is(err, fault.ChainMismatch) {
		return
	}
	r.health.clearFailure(last)
	_, _ = r.submit(bandCommits, 1, r.catchUpJob(ctx)) // if the queue is full, the commits in it catch up
}
