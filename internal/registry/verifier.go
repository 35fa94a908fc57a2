package registry

import (
	"context"
	"errors"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/registry/ledger"
)

// runVerifier is the verifier's Serve. It verifies new versions when they are
// committed. In each round it verifies the whole log independently, in small time
// slices, so that damage is found before the damaged data is needed.
func (r *Registry) runVerifier(ctx context.Context) error {
	fresh := newCommitVerifier(r)
	for {
		began := time.Now()
		derivedDamage, err := r.verifyRound(ctx, fresh.verify)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil && derivedDamage != nil:
			r.metrics.verifyRounds.WithLabelValues("damaged").Inc()
			r.health.setDerivedDamage(derivedDamage)
			r.audit(Event{Type: EventDamaged, Detail: derivedDamage.Error()})
		case err == nil:
			r.health.setDerivedDamage(nil)
			r.metrics.verifyRounds.WithLabelValues("ok").Inc()
			r.metrics.verifySeconds.Observe(time.Since(began).Seconds())
		case errors.Is(err, fault.IntegrityFail):
			r.metrics.verifyRounds.WithLabelValues("damaged").Inc()
			r.reportDamage(err)
		default:
			r.metrics.countFailure("read", err) // the storage could not be read; that says nothing of the log
		}
		if r.waitForNextRound(ctx, fresh) != nil {
			return nil
		}
	}
}

// waitForNextRound waits for the next round, and verifies what is committed
// meanwhile. It reads the pause again every second, because it may be changed.
func (r *Registry) waitForNextRound(ctx context.Context, fresh *commitVerifier) error {
	for since := time.Now(); ; {
		if err := fresh.wait(ctx, verifyTick); err != nil {
			return err
		}
		if pause := r.settings.Load().VerifyPause; pause > 0 && time.Since(since) >= pause {
			return nil
		}
	}
}

const (
	verifyTick  = time.Second
	verifySlice = 5 * time.Millisecond
)

// maxRoundRestarts is how often a round is tried if versions are pruned during it.
const maxRoundRestarts = 5

// verifyRound verifies the log once. A failure proves nothing if versions were pruned
// meanwhile; then the round begins again. Between two records it calls between, if that
// is not nil.
func (r *Registry) verifyRound(ctx context.Context, between func(context.Context) error) (derivedDamage, err error) {
	for try := 1; ; try++ {
		_, before, err := r.journal.Pruned(ctx)
		if err != nil {
			return nil, asIntegrityError(err)
		}
		derivedDamage, err := r.verifyOnce(ctx, between)
		if err == nil {
			return derivedDamage, nil
		}
		_, after, again := r.journal.Pruned(ctx)
		if again == nil && before == after && fault.KindOf(err) == fault.Expired {
			err = fault.WrapKind(verifyOp, fault.IntegrityFail, err) // the version is gone, and nothing was pruned
		}
		if again != nil || before == after || try == maxRoundRestarts {
			return nil, err
		}
	}
}

// verifyOnce reads all of the log as it is at this moment, and checks it against what
// is served. It returns damage to derived data separately from damage to the log.
func (r *Registry) verifyOnce(ctx context.Context, between func(context.Context) error) (derivedDamage, err error) {
	if r.view.Load().state == nil {
		return nil, nil
	}
	w, err := newVerification(ctx, r.journal, r.ownVerifier)
	if err != nil {
		return nil, err
	}
	v := r.view.Load() // after the checkpoints were read: it shows all that ours cover
	head, err := r.journal.Head(ctx)
	if err != nil {
		return nil, err
	}
	slice := time.Now()
	pause := func() error {
		if between != nil {
			before := time.Now()
			if err := between(ctx); err != nil {
				return err
			}
			slice = slice.Add(time.Since(before)) // that has pauses of its own
		}
		return r.throttle(ctx, &slice)
	}
	err = r.journal.Scan(ctx, w.first, func(record ledger.Record) error {
		if err := w.step(ctx, record); err != nil {
			return err
		}
		if err := w.compareServed(record, v); err != nil {
			return err
		}
		r.metrics.verified.Set(float64(record.Version))
		if record.Version >= head.Version {
			return errStopScan
		}
		return pause()
	})
	if err != nil && !errors.Is(err, errStopScan) {
		return nil, asIntegrityError(err)
	}
	if w.tree.Size() < v.nextVersion() {
		return nil, integrityError("the log ends with %d versions, but %d are served", w.tree.Size(), v.nextVersion())
	}
	return w.derivedDamage, w.finish(ctx, pause)
}

// compareServed compares what was read with what is served.
func (w *verification) compareServed(record ledger.Record, v *view) error {
	if w.tree.Size() != v.nextVersion() {
		return nil
	}
	if record.Head() != v.state.Head() || w.tree.Root() != v.tree.Root() {
		return integrityError("the log differs from the served versions, at version %d or before it", record.Version)
	}
	return nil
}

// throttle pauses when a slice is used up, so that the verifier stays within its share
// of a core.
func (r *Registry) throttle(ctx context.Context, slice *time.Time) error {
	worked := time.Since(*slice)
	if worked < verifySlice {
		return nil
	}
	share := time.Duration(r.settings.Load().VerifyShare)
	err := flow.Sleep(ctx, worked*(100-share)/share)
	*slice = time.Now()
	return err
}
