package transfer

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/chunkmap"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/store"
)

const op = "index.fetch"

// The bounds of a transfer.
const (
	runSize        = 512 << 10 // whole groups
	lanesPerSource = 2         // so that a source is never idle for a round trip
	ahead          = 16        // runs that are in memory before the store has them
	aheadShared    = 96        // the same, while other nodes fetch the object too: they have more for each other
	behind         = 8         // and after it has them, if it does not lend what arrives
)

// MaxSources is how many sources send at the same time.
const MaxSources = 8

// MaxMemory is what a transfer holds at most, besides the tree.
const MaxMemory = (aheadShared + behind) * runSize

// Source sends parts of the object.
type Source struct {
	ID    string // what it is known by: two sources with the same one are the same
	Label string // for people

	// Open begins to fetch some bytes. They are not verified.
	Open func(ctx context.Context, from, length int64) (io.ReadCloser, error)

	// Parts asks a source that fetches the object itself for what it has. It may be
	// nil; one that does not know the question is Malformed.
	Parts func(ctx context.Context) (oap.Parts, error)

	// Blame is told that the source sent wrong bytes. It may be nil.
	Blame func(err error)
}

// Spec is what a transfer is made of.
type Spec struct {
	Address b3.Address
	Size    int64
	Tree    b3.Outboard // every node is proven: what is wrong later is data, and whoever sent that is to blame
	Head    []byte      // the first bytes, if they are here already; not verified
	Sources []Source
	Self    string // the ID by which others know this node as a source

	// More returns sources that may be new. It is asked from time to time while
	// there are few, and may be nil.
	More func(ctx context.Context) []Source

	// Go starts a task, or says why not.
	Go func(func(ctx context.Context) error) error

	// Failed is told when a source fails, with how many of its bytes were of no
	// use. It may be nil.
	Failed func(s Source, wasted int64, err error)

	// Patience is how long nothing may arrive.
	Patience time.Duration

	// Limited reports whether this node limits what it receives. It may be nil.
	Limited func() bool

	// Keeps says that the store keeps what has arrived when the transfer fails,
	// and the next one goes on from there.
	Keeps bool

	// Similar finds which bytes of the object others that are here may have, in
	// the order of the object. Nothing but the head is fetched before it returns.
	// ReadSimilar reads them. What they say is verified. They may be nil.
	Similar     func(ctx context.Context) []chunkmap.Span
	ReadSimilar func(ctx context.Context, from b3.Address, p []byte, off int64) error

	// Arrival is that of the Put that reads the transfer.
	Arrival *store.Arrival
}

// Transfer is an object on its way.
type Transfer struct {
	// set at construction
	spec Spec
	ctx  context.Context // of the whole transfer, which is why it is kept
	stop context.CancelFunc

	mark uint64 // of this node: see isOurs
	read int64  // returned by Read; owned by its caller

	mu       sync.Mutex //lockblock:leaf copies of single groups, assignments
	started  bool       // the lanes of the first sources run
	changed  chan struct{}
	ahead    io.WriterAt // where what is verified is kept if the process is killed; nil if nowhere
	sources  []*source
	runs     []*run // those that are in memory, in order
	stored   int64  // everything before is in the store
	next     int64  // where the run after the last begins
	arrived  int64  // verified bytes, in any order
	copied   int64  // of them, those that other objects here had
	copying  bool   // it is not known yet what others have of all runs
	searched bool   // it is known what others may have
	copiedTo int64  // what others have of the runs before is known
	rate     rate
	moved    time.Time
	limited  bool  // this node limited what it receives, when last asked
	err      error // why it is over; io.EOF if all is well
	shared   bool  // some source fetches the object itself: see anyRun
	asking   bool  // for more sources
	closed   bool  // the Put has ended, too
	began    time.Time
	askedFor time.Time
}

// New makes a transfer, which begins with the first Read. The size must be that
// of the tree: if it is not, or not that of the address, that is IntegrityFail.
// The context is that of the whole transfer. The caller must Close it.
func New(ctx context.Context, spec Spec) (*Transfer, error) {
	now := time.Now()
	t := &Transfer{spec: spec, mark: markOf(spec.Self), moved: now, began: now}
	t.rate.began = now
	t.limited = t.isLimited()
	head := int64(len(spec.Head)) / b3.GroupSize * b3.GroupSize
	if head > ahead*runSize {
		head = ahead * runSize
	}
	verified, err := b3.Open(spec.Address, spec.Size, spec.Tree, &part{from: &bytesReader{spec.Head}})
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	t.ctx, t.stop = context.WithCancel(ctx)
	// The head fills the first runs. What is wrong in it is left out: its source
	// is asked again like every other, and fails then.
	body, err := verified.Range(0, head)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	for good := true; good && t.next < head; {
		r := t.appendRun()
		n, err := io.ReadFull(body, r.bytes[:min(int64(len(r.bytes)), head-r.from)])
		r.have = int64(n) / b3.GroupSize * b3.GroupSize
		t.arrived += r.have
		good = err == nil
	}
	t.spec.Head = nil
	return t, nil
}

// Resume lets the transfer go on from what a store has kept of the object, as a
// [store.PutOptions] wants it: before the first Read. What is right of it, whole
// groups from the front, is written to good. The disk is trusted as little as a
// source.
func (t *Transfer) Resume(kept io.ReaderAt, n int64, good io.Writer) error {
	n = min(n, t.spec.Size) / b3.GroupSize * b3.GroupSize
	verified, err := b3.Open(t.spec.Address, t.spec.Size, t.spec.Tree, kept)
	if err != nil {
		return fault.Wrap(op, err)
	}
	groups, err := verified.Range(0, n)
	if err != nil {
		return fault.Wrap(op, err)
	}
	here := int64(0)
	for buffer := make([]byte, b3.GroupSize); here < n; here += b3.GroupSize {
		if _, wrong := io.ReadFull(groups, buffer); wrong != nil {
			break // from here on it is fetched
		}
		if _, err := good.Write(buffer); err != nil {
			return fault.Wrap(op, err)
		}
	}
	if here == 0 {
		return nil
	}
	ahead, err := t.readAhead(verified, here, n)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.runs {
		r.release() // the head, which is kept, or shorter than what is
	}
	t.runs, t.next, t.stored, t.read, t.arrived = ahead, here, here, here, here
	for _, r := range ahead {
		t.next += int64(len(r.bytes))
		t.arrived += r.have
	}
	t.wake()
	return nil
}

// readAhead reads the runs behind the front that was kept, as far as the lanes had
// come with each when the process ended.
func (t *Transfer) readAhead(kept *b3.Verified, from, n int64) (runs []*run, err error) {
	for len(runs) < ahead && from < n {
		r := newRun(from, t.spec.Size)
		if r.have, err = readGroups(kept, r.bytes, from, n); err != nil {
			return nil, err
		}
		runs, from = append(runs, r), from+int64(len(r.bytes))
	}
	// Those at the end that have nothing are begun when there is room.
	for len(runs) > 0 && runs[len(runs)-1].have == 0 {
		runs[len(runs)-1].release()
		runs = runs[:len(runs)-1]
	}
	return runs, nil
}

// readGroups reads whole groups from an offset on, which must not be wrong, and
// returns how many bytes they have.
func readGroups(kept *b3.Verified, into []byte, from, n int64) (have int64, err error) {
	if from >= n {
		return 0, nil
	}
	groups, err := kept.Range(from, min(int64(len(into)), n-from))
	if err != nil {
		return 0, fault.Wrap(op, err)
	}
	got, _ := io.ReadFull(groups, into[:min(int64(len(into)), n-from)]) // from what is wrong on it is fetched
	return int64(got) / b3.GroupSize * b3.GroupSize, nil
}

// Ahead takes the place where what is verified is written, as a
// [store.PutOptions] offers it.
func (t *Transfer) Ahead(w io.WriterAt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ahead = w
}

// Close ends the transfer. Whoever waits for bytes gets its error.
func (t *Transfer) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.err = fault.New(op, fault.Canceled, "the transfer was ended")
	}
	t.stop()
	t.runs, t.closed = nil, true
	t.wake()
	return nil
}

// isClosed reports whether the transfer has been closed: whoever began it does
// that when its Put has ended.
func (t *Transfer) isClosed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

// awaitClosed waits until it has been.
func (t *Transfer) awaitClosed(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for !t.closed {
		t.wait(ctx)
		if err := flow.Ended(ctx, op); err != nil {
			return err
		}
	}
	return nil
}

// Read returns the next bytes. It belongs to the task that stores the object:
// what it has returned before is in the store when it is called again.
func (t *Transfer) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	lends := t.spec.Arrival.Begun()
	t.mu.Lock()
	if !t.started {
		t.started = true
		t.startCopying()
		t.add(t.spec.Sources)
	}
	t.store(t.read, lends)
	for {
		switch {
		case t.err != nil:
			defer t.mu.Unlock()
			return 0, t.err
		case t.read == t.spec.Size:
			t.err = io.EOF
			t.wake()
			continue
		}
		if r := t.runAt(t.read); r != nil {
			n := copy(p, r.bytes[t.read-r.from:r.have])
			t.read += int64(n)
			t.mu.Unlock()
			return n, nil
		}
		t.judge(time.Now())
		if t.err == nil {
			t.wait(t.ctx)
		}
	}
}

// isLimited reports whether this node limits what it receives.
func (t *Transfer) isLimited() bool { return t.spec.Limited != nil && t.spec.Limited() }

// store forgets the runs that the store has. If it does not lend them, the last
// ones stay for readers. Guarded by mu.
func (t *Transfer) store(read int64, lends bool) {
	t.stored = read
	before := len(t.runs)
	stays := int64(0)
	if !lends {
		stays = behind * runSize
	}
	for len(t.runs) > 0 && t.runs[0].from+int64(len(t.runs[0].bytes))+stays <= read {
		t.runs[0].release()
		t.runs = t.runs[1:]
	}
	if len(t.runs) < before {
		t.wake() // there is room for the next ones
	}
}

// The pauses after which more sources are asked for: while there is none, and
// while there are few. Others may have the object by now, or parts of it. Those
// who begin at the same time find each other soon: the first pauses are shorter.
const (
	askForFirst = 250 * time.Millisecond
	askForAny   = time.Second
	askForMore  = 3 * time.Second
)

// runAt returns the run in memory that has the byte at an offset, or nil. Guarded
// by mu.
func (t *Transfer) runAt(off int64) *run {
	for _, r := range t.runs {
		if off >= r.from && off < r.from+r.have {
			return r
		}
	}
	return nil
}

// hasRoom reports whether another run may be begun. Guarded by mu.
func (t *Transfer) hasRoom() bool {
	reach := int64(ahead)
	if t.shared {
		reach = aheadShared
	}
	return t.next < t.spec.Size && t.next < t.stored/runSize*runSize+reach*runSize
}

// judge ends a transfer in which nothing has moved for too long, and asks for
// more sources if it has few. Guarded by mu.
func (t *Transfer) judge(now time.Time) {
	live := 0
	for _, s := range t.sources {
		if !s.dropped {
			live++
		}
	}
	pause := min(max(askForFirst, t.askedFor.Sub(t.began)), askForMore)
	if live == 0 {
		pause = askForAny
	}
	if t.copying && !t.searched {
		t.moved = now // nobody was asked for anything
	}
	switch idle := now.Sub(t.moved); {
	case idle >= t.spec.Patience, live == 0 && t.spec.More == nil:
		t.fail(now)
	case live < MaxSources && t.spec.More != nil && !t.asking && now.Sub(t.askedFor) >= pause:
		t.asking, t.askedFor = true, now
		if err := t.spec.Go(t.askForMore); err != nil {
			t.asking = false
		}
	}
}

// fail ends the transfer with how far it came, and who was lost. That is never
// NotFound: there was somebody who had the object. Guarded by mu.
func (t *Transfer) fail(now time.Time) {
	problem := &fault.Error{Op: op, Kind: fault.UpstreamFailed,
		Next: "Connect to a node that has it with `micronode peers add`, and try again."}
	if t.spec.Keeps {
		problem.Next = "Connect to a node that has it with `micronode peers add`, and try again: it goes on from what is here."
	}
	said := ""
	liars := slices.DeleteFunc(slices.Clone(t.sources), func(s *source) bool { return !s.lied })
	if named := t.lostLast(); named != nil {
		problem.Err = named.lost
		said = "; it lost " + strings.TrimPrefix(named.Label, "from ")
		if others := t.countLost() - 1; others > 0 {
			said += fmt.Sprintf(" and %d more", others)
		}
	}
	if len(liars) > 0 && len(liars) == len(t.sources) {
		problem.Kind = fault.IntegrityFail
	}
	problem.Detail = fmt.Sprintf("the transfer of %s stopped at %d %%: nothing arrived for %s%s",
		t.spec.Address, 100*t.arrived/t.spec.Size, now.Sub(t.moved).Round(time.Second), said)
	t.err = problem
	t.stop()
	t.wake()
}

// lostLast returns the source that failed last, or nil. Guarded by mu.
func (t *Transfer) lostLast() (last *source) {
	for _, s := range t.sources {
		if s.lost != nil && (last == nil || s.lostAt.After(last.lostAt)) {
			last = s
		}
	}
	return last
}

// countLost counts the sources whose last attempt failed. Guarded by mu.
func (t *Transfer) countLost() (n int) {
	for _, s := range t.sources {
		if s.lost != nil {
			n++
		}
	}
	return n
}

// askForMore is the task that does.
func (t *Transfer) askForMore(context.Context) error {
	found := t.spec.More(t.ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asking = false
	t.add(found)
	return nil
}

// add adds the sources that are new, and those that were dropped because they
// failed, and starts their lanes. Guarded by mu.
func (t *Transfer) add(found []Source) {
	sending := 0
	for _, s := range t.sources {
		if !s.dropped {
			sending++
		}
	}
	for _, one := range found {
		known := t.source(one.ID)
		if sending == MaxSources || t.err != nil || known != nil && (!known.dropped || known.lied || known.lanes > 0) {
			continue
		}
		if known == nil {
			known = &source{Source: one}
			t.sources = append(t.sources, known)
		}
		*known = source{Source: one, mark: markOf(one.ID), lost: known.lost, lostAt: known.lostAt, followed: known.followed}
		sending++
		for range lanesPerSource {
			l := &lane{transfer: t, source: known}
			if t.spec.Go(l.run) == nil {
				known.lanes++
			}
		}
		known.dropped = known.lanes == 0
	}
}

// source returns the source with an ID, or nil. Guarded by mu.
func (t *Transfer) source(id string) *source {
	for _, s := range t.sources {
		if s.ID == id {
			return s
		}
	}
	return nil
}

// Progress is how far a transfer is.
type Progress struct {
	Size    int64
	Arrived int64
	Copied  int64 // of what has arrived: from other objects that were here
	Sources int   // that send
	Rate    int64 // bytes a second, lately; 0 if nothing has come yet
}

// rateWindow is how long bytes are counted for the rate.
const rateWindow = 2 * time.Second

// rate is how fast bytes come. It is guarded by the transfer's mu.
type rate struct {
	began time.Time // the window
	bytes int64     // that came in it
	last  float64   // bytes a second in the window before; 0 if there was none
}

// count counts bytes that have come.
func (r *rate) count(n int64, now time.Time) {
	if took := now.Sub(r.began); took >= rateWindow {
		r.last, r.began, r.bytes = float64(r.bytes)/took.Seconds(), now, 0
	}
	r.bytes += n
}

// now returns the rate of the last window, or that of the present one if it is the
// first, or longer than it should be because little comes.
func (r *rate) now(now time.Time) int64 {
	took := now.Sub(r.began)
	if took > 0 && (r.last == 0 || took > rateWindow) {
		return int64(float64(r.bytes) / took.Seconds())
	}
	return int64(r.last)
}

// Progress returns how far the transfer is.
func (t *Transfer) Progress() Progress {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := Progress{Size: t.spec.Size, Arrived: t.arrived, Copied: t.copied, Rate: t.rate.now(time.Now())}
	for _, s := range t.sources {
		if !s.dropped {
			p.Sources++
		}
	}
	return p
}

// Err returns why the transfer is over: nil while it is not, io.EOF if all is
// well.
func (t *Transfer) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// wake wakes all that wait. Guarded by mu.
func (t *Transfer) wake() {
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}

// lookAgain is how often something that waits looks again although nothing has
// changed: time has passed, and that may be what it waits for.
const lookAgain = 50 * time.Millisecond

// wait waits until something has changed, or might have. It is called and
// returns with mu held.
func (t *Transfer) wait(ctx context.Context) {
	if t.changed == nil {
		t.changed = make(chan struct{})
	}
	changed := t.changed
	t.mu.Unlock()
	timer := time.NewTimer(lookAgain)
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
	}
	timer.Stop()
	t.mu.Lock()
	if ended := flow.Ended(t.ctx, op); ended != nil && t.err == nil {
		t.err = ended
		t.wake()
	}
}
