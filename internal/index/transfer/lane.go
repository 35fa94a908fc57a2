package transfer

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
)

// source is a Source in a transfer. All of it is guarded by the transfer's mu.
type source struct {
	Source
	lanes    int
	rate     float64   // bytes a second of one lane, lately; 0 if it is not known
	failures int       // in a row
	rests    time.Time // until then
	dropped  bool      // it is not asked any more
	lied     bool      // and never again
	lost     error     // why its last attempt failed; nil if it did not
	lostAt   time.Time
	lacks    int       // runs in a row that it did not have yet
	mark     uint64    // of its ID: see isOurs
	parts    oap.Parts // what it has, if it fetches the object itself; nil if it has all, or does not say
	followed bool      // a task asks it for its parts
	silent   bool      // it does not say what parts it has
}

// The rests of a source that fails, and how often it may in a row.
var rest = flow.Backoff{Min: 100 * time.Millisecond, First: 200 * time.Millisecond, Max: 5 * time.Second, FullJitter: true}

const maxFailures = 6

// lane is a task that fetches runs from one source, one after the other.
type lane struct {
	// set at construction
	transfer *Transfer
	source   *source

	spare []byte // memory for what is written ahead; owned by the lane's task

	stop    context.CancelFunc // of the run that is being fetched; guarded by the transfer's mu
	began   time.Time          // that run; guarded by the transfer's mu
	moved   time.Time          // when it last brought something; guarded by the transfer's mu
	brought int64              // bytes of that run; guarded by the transfer's mu
}

// errTakenOver is the error of a lane whose run another lane has.
var errTakenOver = fault.New(op, fault.Canceled, "another source is faster")

// run fetches runs until the transfer is over or its source is dropped.
func (l *lane) run(task context.Context) error {
	t := l.transfer
	ctx, cancel := flow.Join(task, t.ctx)
	defer cancel()
	t.mu.Lock()
	defer t.mu.Unlock()
	defer func() {
		l.source.lanes--
		t.wake()
	}()
	for t.err == nil && ctx.Err() == nil && !l.source.dropped {
		r := l.nextRun(time.Now())
		if r == nil {
			t.wait(ctx)
			continue
		}
		own, stop := context.WithCancel(ctx)
		now := time.Now()
		r.lane, l.stop, l.began, l.moved, l.brought = l, stop, now, now, 0
		n, _ := r.missing()
		from := r.from + r.have
		t.mu.Unlock()
		wasted, err := l.fetch(own, r, from, n)
		stop()
		t.mu.Lock()
		l.record(r, wasted, err)
	}
	return nil
}

// nextRun returns the run that the lane fetches next: the first that nobody
// fetches, a new one while there is room, or one of a lane that is much slower.
// Nil means that there is nothing to do now. Guarded by mu.
func (l *lane) nextRun(now time.Time) *run {
	t := l.transfer
	if now.Before(l.source.rests) || l.waitsForItsTwin() {
		return nil
	}
	if t.shared {
		if r := l.anyRun(now); r != nil {
			return r
		}
	} else {
		for _, r := range t.runs {
			if r.lane == nil && !r.isComplete() && t.mayFetch(r) {
				return r
			}
		}
		if !t.copying && t.hasRoom() {
			return t.appendRun()
		}
	}
	for _, r := range t.runs {
		if r.lane != nil && r.lane != l && l.mayHave(r, now) && l.isFaster(r, now) {
			r.lane.stop()
			r.lane.source.rate /= 2
			return r
		}
	}
	return nil
}

// anyRun returns one of the runs that nobody fetches: of those that the fewest of
// the nodes have that fetch the object at the same time, one at random. So they
// have different parts of it, and get them from each other instead of all of
// them from one. A source that has everything is asked first for what is this
// node's share, and for a while not for what others have. Guarded by mu.
func (l *lane) anyRun(now time.Time) *run {
	t := l.transfer
	for !t.copying && t.hasRoom() {
		t.appendRun()
	}
	var free []*run
	fewest := 0
	for _, r := range t.runs {
		if r.lane != nil || r.isComplete() || !t.mayFetch(r) || !l.mayHave(r, now) {
			continue
		}
		rarity := 2 * t.copies(r)
		if l.source.parts == nil {
			if rarity > 0 && now.Sub(r.begun) < leftToOthers {
				continue
			}
			if !t.isOurs(r) {
				rarity++
			}
		}
		if len(free) == 0 || rarity < fewest {
			free, fewest = free[:0], rarity
		}
		if rarity == fewest {
			free = append(free, r)
		}
	}
	if len(free) == 0 {
		return nil
	}
	return free[rand.IntN(len(free))]
}

// mayHave reports whether the source has a run, as far as is known: a run that it
// did not have is tried again a little later. Guarded by mu.
func (l *lane) mayHave(r *run, now time.Time) bool {
	if l.source.parts != nil {
		return l.source.parts.Has(r.from, int64(len(r.bytes)), l.transfer.spec.Size, false)
	}
	return !now.Before(r.lackedBy[l.source.ID])
}

// waitsForItsTwin reports whether the lane waits until the other one of its source
// has most of its run. While others fetch the object too, each of them asks the
// one that has everything for one run at a time: the fewer are under way, the
// fewer are the same. Guarded by mu.
func (l *lane) waitsForItsTwin() bool {
	t := l.transfer
	if !t.shared || l.source.parts != nil || !t.hasCompany() {
		return false
	}
	for _, r := range t.runs {
		if r.lane != nil && r.lane != l && r.lane.source == l.source && r.have < int64(len(r.bytes))*3/4 {
			return true
		}
	}
	return false
}

// leftToOthers is how long a source that has everything leaves a run to those
// that fetch the object themselves, and have it or get it.
const leftToOthers = 3 * time.Second

// lackPause is how long a source is not asked for a run again that it did not
// have, and maxLacks after how many of those in a row it rests.
const (
	lackPause = 250 * time.Millisecond
	maxLacks  = ahead
)

// silence is how long a lane may bring nothing before a free one takes its run.
// sharedSilence is that while other nodes fetch the object too: then all send to
// many, and a run that is taken over was mostly sent for nothing. limitedSilence
// is that while this node limits what it receives: then a lane may
// bring nothing because it waits for its turn, and one that took its run would
// begin that wait again.
const (
	silence        = time.Second
	sharedSilence  = 3 * time.Second
	limitedSilence = 20 * time.Second
)

// isFaster reports whether the lane would complete a run that another one
// fetches in less than half the time. Guarded by mu.
func (l *lane) isFaster(r *run, now time.Time) bool {
	if r.lane.source == l.source {
		return false
	}
	if l.transfer.limited {
		return now.Sub(r.lane.moved) >= limitedSilence // rates say nothing about sources then
	}
	if l.transfer.shared {
		return now.Sub(r.lane.moved) >= sharedSilence
	}
	if now.Sub(r.lane.moved) >= silence {
		return true
	}
	_, left := r.missing()
	took := now.Sub(r.lane.began).Seconds()
	if l.source.rate == 0 || took < lookAgain.Seconds() {
		return false
	}
	theirs := float64(r.lane.brought) / took
	return float64(left)/l.source.rate+lookAgain.Seconds() < float64(left)/max(theirs, 1)/2
}

// fetch fetches what is missing next of a run, group by group. It returns how
// many bytes came for nothing.
func (l *lane) fetch(ctx context.Context, r *run, from, n int64) (wasted int64, err error) {
	t := l.transfer
	body, err := l.source.Open(ctx, from, n)
	if err != nil {
		return 0, err
	}
	defer func() { _ = body.Close() }() // it was read to its end, or the error is known
	stream := &part{from: body, at: from}
	verified, err := b3.Open(t.spec.Address, t.spec.Size, t.spec.Tree, stream)
	if err != nil {
		return 0, err
	}
	groups, err := verified.Range(from, n)
	if err != nil {
		return 0, err
	}
	t.mu.Lock()
	verifiedAhead := aheadBuffer{file: t.ahead, at: from, bytes: l.spare}
	t.mu.Unlock()
	defer func() {
		verifiedAhead.flush()
		l.spare = verifiedAhead.bytes
	}()
	buffer := make([]byte, b3.GroupSize)
	for kept := int64(0); kept < n; {
		group := buffer[:min(int64(len(buffer)), n-kept)]
		if _, err := io.ReadFull(groups, group); err != nil {
			return stream.n - kept, err
		}
		limited := t.isLimited()
		t.mu.Lock()
		t.limited = limited
		if r.lane != l || t.err != nil {
			t.mu.Unlock()
			return stream.n - kept, errTakenOver
		}
		r.have += int64(copy(r.bytes[r.have:], group))
		l.brought += int64(len(group))
		t.arrived += int64(len(group))
		t.moved = time.Now()
		t.rate.count(int64(len(group)), t.moved)
		l.moved = t.moved
		if kept += int64(len(group)); kept == n {
			r.skipGood()
		}
		t.wake()
		t.mu.Unlock()
		verifiedAhead.add(group)
	}
	return stream.n - n, nil
}

// aheadBuffer writes what a lane has verified to where it belongs in the file of
// the store. The store has it only when all before it is there; until then it
// would be lost with the process. It has bytes of its own: those of a run may be
// another's by the time they are written.
type aheadBuffer struct {
	file  io.WriterAt // nil if there is none
	at    int64       // where the bytes belong
	bytes []byte
}

// aheadStep is how much is written at a time: as much as a chunk of a stream has.
const aheadStep = 64 << 10

func (b *aheadBuffer) add(group []byte) {
	if b.file == nil {
		return
	}
	if b.bytes == nil {
		b.bytes = make([]byte, 0, aheadStep)
	}
	if b.bytes = append(b.bytes, group...); len(b.bytes) >= aheadStep {
		b.flush()
	}
}

// flush writes what is there. That it cannot be written is found by the store.
func (b *aheadBuffer) flush() {
	if len(b.bytes) > 0 {
		_, _ = b.file.WriteAt(b.bytes, b.at)
		b.at, b.bytes = b.at+int64(len(b.bytes)), b.bytes[:0]
	}
}

// record notes how the fetch of a run has ended. Guarded by mu.
func (l *lane) record(r *run, wasted int64, err error) {
	t, s, now := l.transfer, l.source, time.Now()
	got := l.brought
	if r.lane != l {
		err = errTakenOver
	} else {
		r.lane = nil
	}
	switch kind := fault.KindOf(err); {
	case err == nil:
		if took := now.Sub(l.began).Seconds(); took > 0 {
			s.rate += (float64(got)/took - s.rate) / 4
		}
		s.failures, s.lacks = 0, 0
		if !s.dropped { // by its other lane, meanwhile
			s.lost = nil
		}
	case errors.Is(err, errTakenOver), t.ctx.Err() != nil, t.err != nil:
	case kind == fault.NotReady:
		// It fetches the object itself, and has not got this run yet.
		t.shared = true
		t.beginToFollow(s)
		if r.lackedBy == nil {
			r.lackedBy = map[string]time.Time{}
		}
		r.lackedBy[s.ID] = now.Add(lackPause)
		if s.lacks++; got > 0 {
			s.lacks = 0
		}
		if s.lacks > maxLacks {
			s.rests = now.Add(rest.Delay(s.lacks - maxLacks))
		}
	default:
		if got > 0 {
			s.failures = 0
		}
		t.lose(s, wasted, err)
	}
	t.wake()
}

// lose notes that a source has failed, with how many of its bytes were of no use.
// Guarded by mu.
func (t *Transfer) lose(s *source, wasted int64, err error) {
	now := time.Now()
	s.lost, s.lostAt = fault.Wrap(op, err), now
	s.failures++
	s.rests = now.Add(rest.Delay(s.failures - 1))
	switch fault.KindOf(err) {
	case fault.IntegrityFail:
		s.lied, s.dropped = true, true
		if s.Blame != nil {
			s.Blame(err)
		}
	case fault.NotFound, fault.Malformed, fault.Unauthorized, fault.Forbidden:
		s.dropped = true
	}
	s.dropped = s.dropped || s.failures > maxFailures
	if t.spec.Failed != nil {
		t.spec.Failed(s.Source, wasted, err)
	}
}
