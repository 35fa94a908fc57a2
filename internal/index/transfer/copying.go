package transfer

import (
	"context"
	"io"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/chunkmap"
	"micronode/internal/flow"
)

// maxWrongGroups is after how many wrong groups, if fewer were right, no others
// are copied: then the hints are worth nothing.
const maxWrongGroups = 256

// startCopying starts the task that copies what other objects here have, if there
// may be any. Guarded by mu.
func (t *Transfer) startCopying() {
	if t.spec.Similar == nil {
		return
	}
	t.copying = true
	if t.spec.Go(t.copySimilar) != nil {
		t.copying = false // all of it is fetched
	}
}

// mayFetch reports whether a run may be fetched: it is known what others have of
// it. Guarded by mu.
func (t *Transfer) mayFetch(r *run) bool { return !t.copying || r.from < t.copiedTo }

// copySimilar is the task that copies what other objects here have, run by run,
// ahead of the lanes. An object that vanishes, or that is damaged, is read no
// more, and the lanes fetch the rest.
func (t *Transfer) copySimilar(task context.Context) error {
	ctx, cancel := flow.Join(task, t.ctx)
	defer cancel()
	spans := t.spec.Similar(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	defer func() {
		t.copying = false
		t.wake()
	}()
	t.searched = true
	wrong, lost := 0, map[b3.Address]bool{}
	for len(spans) > 0 && t.err == nil && ctx.Err() == nil {
		r := t.nextToCopy()
		switch {
		case r == nil && t.next == t.spec.Size:
			return nil
		case r == nil:
			t.wait(ctx)
			continue
		}
		for len(spans) > 0 && spans[0].At+spans[0].Length <= r.from {
			spans = spans[1:]
		}
		if !r.isComplete() {
			have := r.have
			t.mu.Unlock()
			good, bad := t.copyRun(ctx, r, have, spans, lost)
			t.mu.Lock()
			if wrong += bad; wrong > maxWrongGroups && int64(wrong)*b3.GroupSize > t.copied {
				spans = nil
			}
			t.keepCopied(r, good)
		}
		t.copiedTo = r.from + int64(len(r.bytes))
		t.wake()
	}
	return nil
}

// nextToCopy returns the first run of which it is not known what others have, or
// nil if there is no room for it. Guarded by mu.
func (t *Transfer) nextToCopy() *run {
	for _, r := range t.runs {
		if r.from >= t.copiedTo {
			return r
		}
	}
	if t.hasRoom() {
		return t.appendRun()
	}
	return nil
}

// keepCopied keeps the groups of a run that are good. Guarded by mu.
func (t *Transfer) keepCopied(r *run, good uint32) {
	if good == 0 || t.err != nil {
		return
	}
	r.good = good
	_, before := (&run{bytes: r.bytes, have: r.have}).missing()
	_, after := r.missing()
	t.copied += before - after
	t.arrived += before - after
	t.moved = time.Now()
	r.skipGood()
}

// copyRun copies what others have of a run, behind what it has, and verifies it.
// It returns which groups are right, and how many are wrong. Nobody else writes
// to the run meanwhile, and nobody reads behind what it has.
func (t *Transfer) copyRun(ctx context.Context, r *run, have int64, spans []chunkmap.Span, lost map[b3.Address]bool) (good uint32, wrong int) {
	from, end := r.from+have, r.from+int64(len(r.bytes))
	covered := from // without a gap, since begin
	begin := from
	check := func() { // the whole groups between begin and covered
		first := (begin + b3.GroupSize - 1) / b3.GroupSize * b3.GroupSize
		last := covered
		if last < t.spec.Size {
			last = last / b3.GroupSize * b3.GroupSize
		}
		if first < last {
			right, bad := t.checkGroups(r, first, last)
			good |= right
			wrong += bad
		}
	}
	for _, span := range spans {
		at, to := max(span.At, from), min(span.At+span.Length, end)
		if span.At >= end {
			break
		}
		if at >= to || lost[span.From] {
			continue
		}
		if err := t.spec.ReadSimilar(ctx, span.From, r.bytes[at-r.from:to-r.from], span.Off+at-span.At); err != nil {
			lost[span.From] = true
			continue
		}
		if at != covered {
			check()
			begin = at
		}
		covered = to
	}
	check()
	return good, wrong
}

// checkGroups verifies whole groups of a run. It returns which are right, by
// their bits, and how many are wrong.
func (t *Transfer) checkGroups(r *run, from, end int64) (good uint32, wrong int) {
	verified, err := b3.Open(t.spec.Address, t.spec.Size, t.spec.Tree, &memory{r.bytes, r.from})
	if err != nil {
		return 0, 0 // New has opened it
	}
	buffer := make([]byte, b3.GroupSize)
	for at := from; at < end; {
		groups, err := verified.Range(at, end-at)
		if err != nil {
			return good, wrong
		}
		for ; at < end; at += b3.GroupSize {
			if _, err := io.ReadFull(groups, buffer[:min(b3.GroupSize, end-at)]); err != nil {
				wrong++
				at += b3.GroupSize
				break // a reader ends at the first wrong group
			}
			good |= 1 << ((at - r.from) / b3.GroupSize)
		}
	}
	return good, wrong
}

// memory reads bytes that are from an offset on.
type memory struct {
	bytes []byte
	from  int64
}

func (m *memory) ReadAt(p []byte, off int64) (int, error) {
	off -= m.from
	if off < 0 || off+int64(len(p)) > int64(len(m.bytes)) {
		return 0, fault.New(op, fault.Internal, "%d bytes at %d of %d", len(p), off, len(m.bytes))
	}
	return copy(p, m.bytes[off:]), nil
}
