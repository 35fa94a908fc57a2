package index

import (
	"context"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
)

// fetchAttempt is an attempt to open an object at one source.
type fetchAttempt struct {
	source fetchSource
	body   objectBody
	took   time.Duration      // until the first byte
	cancel context.CancelFunc // of the whole download
	err    error              // why it could not be opened; then only source is set
}

func (f *fetchAttempt) close() {
	if f.body.ReadCloser != nil {
		_ = f.body.Close() // it was read to its end, or the error is known
	}
	f.cancel()
}

// fetchRace is several sources of one object that are tried at the same time.
// It is owned by the caller that waits for the winner.
type fetchRace struct {
	index   *Index
	untried []fetchSource // not tried yet
	running map[*fetchAttempt]bool
	results chan *fetchAttempt
	done    chan struct{} // closed when no result is awaited any more
}

// openFastest tries the sources in order until one of them sends its first
// bytes: the next one starts when all running ones have failed, or when they
// are silent for a while. It returns the sources that were not tried. If all
// fail, it returns the most informative error.
func (x *Index) openFastest(ctx context.Context, ways []fetchSource) (*fetchAttempt, []fetchSource, error) {
	r := &fetchRace{index: x, untried: ways, running: map[*fetchAttempt]bool{}, results: make(chan *fetchAttempt), done: make(chan struct{})}
	defer r.cancelLosers()
	var problem error
	silent := time.NewTimer(fetchHedgeDelay)
	defer silent.Stop()
	late := time.NewTimer(fetchStartTimeout)
	defer late.Stop()
	for {
		if len(r.running) == 0 {
			if len(r.untried) == 0 {
				return nil, nil, problem
			}
			problem = moreInformative(problem, r.startNext(ctx))
			silent.Reset(fetchHedgeDelay)
			continue
		}
		select {
		case got := <-r.results:
			delete(r.running, got)
			if got.err == nil {
				return got, r.untried, nil
			}
			x.providers.observe(got.source.id, 0, false, time.Now())
			if lie := offenceIn(got.err); lie != "" {
				x.recordOffence(got.source, "its proof does not match the object")
			}
			problem = moreInformative(problem, got.err)
		case <-silent.C:
			if len(r.untried) > 0 {
				problem = moreInformative(problem, r.startNext(ctx))
				silent.Reset(fetchHedgeDelay)
			}
		case <-late.C:
			return nil, nil, fault.New(opFetch, fault.Timeout, "none of the sources has sent anything for %s", fetchStartTimeout)
		case <-ctx.Done():
			return nil, nil, flow.Ended(ctx, opFetch)
		}
	}
}

// startNext starts the next source. Its context is that of the download, which
// continues after the race if this one wins. The error is why it could not
// start.
func (r *fetchRace) startNext(ctx context.Context) error {
	own, stop := context.WithCancel(ctx)
	o := &fetchAttempt{source: r.untried[0], cancel: stop}
	r.untried = r.untried[1:]
	r.running[o] = true
	try := func(context.Context) error {
		begun := time.Now()
		o.body, o.err = o.source.open(own)
		o.took = time.Since(begun)
		r.deliver(o)
		return nil
	}
	err := r.index.racers.Go(try)
	if err != nil {
		delete(r.running, o)
		stop()
	}
	return fault.Wrap(opFetch, err)
}

// deliver sends the result of an attempt. If the race is over, it is closed.
func (r *fetchRace) deliver(o *fetchAttempt) {
	if o.err != nil {
		o.cancel()
	}
	select {
	case r.results <- o:
	case <-r.done:
		o.close()
	}
}

// cancelLosers cancels the attempts that are still running.
func (r *fetchRace) cancelLosers() {
	close(r.done)
	for o := range r.running {
		o.cancel()
	}
}
