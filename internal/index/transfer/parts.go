package transfer

import (
	"context"
	"hash/fnv"
	"io"
	"slices"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
)

// Parts returns which parts are here, and which are on their way.
func (t *Transfer) Parts() oap.Parts {
	t.mu.Lock()
	defer t.mu.Unlock()
	size := t.spec.Size
	if t.err != nil && t.stored == size {
		return oap.AllParts(size)
	}
	p := oap.NewParts(size)
	here, coming := t.stored, t.stored // everything before is, without a gap from where the last gap was
	hereFrom, comingFrom := int64(0), int64(0)
	for _, r := range t.runs {
		end := r.from + int64(len(r.bytes))
		if r.from > here {
			p.Add(hereFrom, here, size, false)
			hereFrom, here = r.from, r.from
		}
		here = max(here, r.from+r.have)
		if r.lane == nil && !r.isComplete() {
			p.Add(comingFrom, coming, size, true)
			comingFrom, coming = end, end
		}
		coming = max(coming, end)
	}
	p.Add(hereFrom, here, size, false)
	p.Add(comingFrom, coming, size, true)
	return p
}

// partsPause is how often a source that fetches the object itself is asked what
// it has.
const partsPause = 150 * time.Millisecond

// follow keeps what is known of a source that fetches the object itself, until it
// has all of it, or does not say. It is a task.
func (t *Transfer) follow(task context.Context, s *source, ask func(context.Context) (oap.Parts, error)) error {
	ctx, cancel := flow.Join(task, t.ctx)
	defer cancel()
	for {
		parts, err := ask(ctx)
		t.mu.Lock()
		if err == nil {
			s.parts = parts
		}
		all := err == nil && parts.Has(0, t.spec.Size, t.spec.Size, false)
		over := err != nil || all || t.err != nil || s.dropped
		if over {
			s.followed = false
			s.silent = fault.KindOf(err) == fault.Malformed // a peer of an earlier version
			if err != nil || all {
				s.parts = nil
			}
		}
		t.wake()
		t.mu.Unlock()
		if over || flow.Sleep(ctx, partsPause) != nil {
			return nil
		}
	}
}

// beginToFollow starts the task that follows a source, if there is none and the
// source says what it has. Guarded by mu.
func (t *Transfer) beginToFollow(s *source) {
	ask := s.Source.Parts
	if ask == nil || s.followed || s.silent {
		return
	}
	s.followed = t.spec.Go(func(task context.Context) error { return t.follow(task, s, ask) }) == nil
}

// hasCompany reports whether a source fetches the object itself and says what it
// has. Guarded by mu.
func (t *Transfer) hasCompany() bool {
	return slices.ContainsFunc(t.sources, func(s *source) bool { return s.parts != nil && !s.dropped })
}

// isOurs reports whether a run is this node's share of what has to come from those
// that have everything. Those that fetch an object at the same time draw lots for
// each run, with the same result at all that know of each other: so they do not
// all ask for the same one before they hear of it. Guarded by mu.
func (t *Transfer) isOurs(r *run) bool {
	ours := lot(t.mark, r)
	return !slices.ContainsFunc(t.sources, func(s *source) bool { return s.parts != nil && !s.dropped && lot(s.mark, r) > ours })
}

// lot is the lot of a node for a run.
func lot(mark uint64, r *run) uint64 {
	x := mark ^ uint64(r.from/runSize)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// markOf is what the lots of a node are made of.
func markOf(id string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, id) // it never fails
	return h.Sum64()
}

// copies is at how many sources a run is that fetch the object themselves, or is
// on its way to. Guarded by mu.
func (t *Transfer) copies(r *run) (n int) {
	for _, s := range t.sources {
		if s.parts != nil && !s.dropped && s.parts.Has(r.from, int64(len(r.bytes)), t.spec.Size, true) {
			n++
		}
	}
	return n
}
