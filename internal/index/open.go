package index

import (
	"context"
	"io"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
)

// opened is an object that has begun to come.
type opened struct {
	way  way
	body io.ReadCloser
	took time.Duration      // until the first byte
	stop context.CancelFunc // of the whole download
	err  error              // why it has not begun; the rest but way is nothing then
}

func (o *opened) close() {
	if o.body != nil {
		_ = o.body.Close() // it was read to its end, or why not is known
	}
	o.stop()
}

// race is several ways to one object that are tried at the same time. It is
// owned by the one who waits for the winner.
type race struct {
	index   *Index
	ways    []way // not tried yet
	running map[*opened]bool
	results chan *opened
	over    chan struct{} // closed when nobody waits for results any more
}

// openFirst tries one way after the other until one of them begins to give: the
// next one when one has failed, or when all are silent for a while. It returns
// the ways that were not tried. The error is the one that says most, if none
// gives.
func (x *Index) openFirst(ctx context.Context, ways []way) (*opened, []way, error) {
	r := &race{index: x, ways: ways, running: map[*opened]bool{}, results: make(chan *opened), over: make(chan struct{})}
	defer r.end()
	var problem error
	silent := time.NewTimer(fetchAfter)
	defer silent.Stop()
	for {
		if len(r.running) == 0 {
			if len(r.ways) == 0 {
				return nil, nil, problem
			}
			problem = worse(problem, r.enter(ctx))
			silent.Reset(fetchAfter)
			continue
		}
		select {
		case got := <-r.results:
			delete(r.running, got)
			if got.err == nil {
				return got, r.ways, nil
			}
			x.providers.note(got.way.id, 0, false, time.Now())
			problem = worse(problem, got.err)
		case <-silent.C:
			if len(r.ways) > 0 {
				problem = worse(problem, r.enter(ctx))
				silent.Reset(fetchAfter)
			}
		case <-ctx.Done():
			return nil, nil, flow.Ended(ctx, opFetch)
		}
	}
}

// enter lets the next way run. Its context is that of the download, which goes
// on after the race if this one wins. The error is why it cannot run.
func (r *race) enter(ctx context.Context) error {
	own, stop := context.WithCancel(ctx)
	o := &opened{way: r.ways[0], stop: stop}
	r.ways = r.ways[1:]
	r.running[o] = true
	try := func(context.Context) error {
		begun := time.Now()
		o.body, o.err = o.way.open(own)
		o.took = time.Since(begun)
		r.tell(o)
		return nil
	}
	err := r.index.racers.Go(try)
	if err != nil {
		delete(r.running, o)
		stop()
	}
	return fault.Wrap(opFetch, err)
}

// tell hands over what came of a way. If nobody waits for it, it is closed.
func (r *race) tell(o *opened) {
	if o.err != nil {
		o.stop()
	}
	select {
	case r.results <- o:
	case <-r.over:
		o.close()
	}
}

// end stops those who have not won.
func (r *race) end() {
	close(r.over)
	for o := range r.running {
		o.stop()
	}
}
