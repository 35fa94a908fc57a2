package index

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/index/hedge"
	"micronode/internal/index/rank"
	"micronode/internal/index/record"
	"micronode/internal/index/transfer"
	"micronode/internal/oap"
	"micronode/internal/store"
)

// An object that is longer than its head is fetched in parts, from all who have
// it at once; see package transfer. What its head shows is not more than
// whether it is.

// headSize is how much of an object is asked for first: all of most objects.
const headSize = 1 << 20

// keeper is a store that keeps what has arrived of an object when its Put fails.
type keeper interface {
	Kept(address b3.Address) int64
}

// headSizeOf is headSize, or a group if the front of the object is here already, or
// may be in an older version.
func (x *Index) headSizeOf(ctx context.Context, address b3.Address) int {
	if at, keeps := x.spec.Store.(keeper); keeps && at.Kept(address) > 0 {
		return b3.GroupSize
	}
	if _, older := x.olderHere(ctx, address); older {
		return b3.GroupSize
	}
	return headSize
}

// transferPatience is how long a transfer waits for its sources: as long as a
// link is away when somebody pulls a cable, and finds the right one again.
const transferPatience = 75 * time.Second

// openPart opens some bytes of an object, or of a view of it, at one source. They
// are not verified. A length of 0 is all.
type openPart func(ctx context.Context, view oap.View, from, length int64) (io.ReadCloser, error)

// parts asks the source for what it has of an object that it may be fetching.
func (open openPart) parts(ctx context.Context) (oap.Parts, error) {
	body, err := open(ctx, oap.Here, 0, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }() // it was read, or the error is known
	text, err := io.ReadAll(io.LimitReader(body, oap.PartsSize(maxProvenBytes)+1))
	return oap.Parts(text), err
}

// receive stores the object that one source has begun to send: its head whole,
// and then, if there is more, in parts from all sources.
func (x *Index) receive(ctx context.Context, address b3.Address, opened *fetchAttempt, sources []fetchSource) (store.Info, bool, error) {
	if opened.body.head == 0 {
		return x.storeBody(ctx, address, opened)
	}
	head := make([]byte, opened.body.head)
	n, err := io.ReadFull(opened.body, head)
	head = head[:n]
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		whole := *opened
		whole.body = objectBody{ReadCloser: struct {
			io.Reader
			io.Closer
		}{bytes.NewReader(head), opened.body}, size: store.Unknown}
		return x.storeBody(ctx, address, &whole)
	}
	opened.close()
	if err == nil {
		info, created, done, err := x.transfer(ctx, address, opened.source, head, sources)
		if done {
			return info, created, err
		}
	}
	// It has no tree, or is larger than can be proven, or it broke off: all of
	// it, in order.
	own, stop := context.WithCancel(ctx)
	begun := time.Now()
	body, err := opened.source.openWhole(own)
	if err != nil {
		stop()
		return store.Info{}, false, err
	}
	return x.storeBody(ctx, address, &fetchAttempt{source: opened.source, body: body, took: time.Since(begun), cancel: stop})
}

// transfer fetches an object in parts. It reports false if that cannot be, for
// want of its tree.
func (x *Index) transfer(ctx context.Context, address b3.Address, first fetchSource, head []byte, sources []fetchSource) (info store.Info, created, done bool, err error) {
	tree, size, err := x.keptTree(ctx, address)
	for _, from := range append([]fetchSource{first}, slices.DeleteFunc(slices.Clone(sources), func(one fetchSource) bool { return one.label == first.label })...) {
		if err == nil {
			break
		}
		if tree, size, err = x.readTree(ctx, address, from); err == nil {
			break
		}
		if fault.KindOf(err) == fault.IntegrityFail { // a peer of an earlier version says Malformed
			x.recordOffence(from, "its proof does not match the object")
		}
	}
	if err != nil {
		return store.Info{}, false, false, nil
	}
	defer x.gatewayClient.treePermits.ReleaseMany(treeUnits(int64(len(tree))))
	arrival := new(store.Arrival)
	_, keeps := x.spec.Store.(keeper)
	spec := transfer.Spec{
		Address: address, Size: size, Tree: tree, Self: peerLabel(x.selfText), Head: head, Sources: x.partSources(address, sources), Arrival: arrival, Patience: transferPatience, Keeps: keeps, Go: x.racers.Go, Limited: x.isLimited,
		More: func(ctx context.Context) []transfer.Source {
			return x.partSources(address, x.fetchSources(ctx, x.newAllowance(), address, x.findAllProviders(ctx, address)))
		},
		Failed: func(_ transfer.Source, wasted int64, _ error) { x.metrics.wasted.Add(float64(wasted)) },
	}
	x.addSimilar(ctx, &spec, sources)
	running, err := transfer.New(ctx, spec)
	if err != nil {
		x.recordOffence(first, "its proof does not match the object")
		return store.Info{}, false, false, nil
	}
	defer running.Close()
	x.arrivals.begin(address, running)
	defer x.arrivals.end(address, running)

	// Each byte is verified before it is read, so other objects are evicted for
	// it if there is no room.
	begun := time.Now()
	info, created, err = x.spec.Store.Put(ctx, running, store.PutOptions{Want: address, Size: size, Class: store.Cached, Arrival: arrival, Resume: running.Resume, Tree: tree, Ahead: running.Ahead})
	now := time.Now()
	x.providers.observe(first.id, now.Sub(begun), err == nil, now)
	x.arrivals.ended(address, err, now)
	last := running.Progress()
	x.metrics.copied.Add(float64(last.Copied))
	if err == nil {
		x.arrivals.noteCopied(address, last.Copied)
		x.audit(Event{Type: Fetched, Key: address.String(), Detail: fmt.Sprintf("%d sources in %s; %d of %d bytes from an older version here", last.Sources, now.Sub(begun).Round(time.Millisecond), last.Copied, last.Size)})
		x.added(address)
	}
	return info, created, true, err
}

// findAllProviders finds as many providers as a transfer can use: a look-up ends
// with the first, which is enough for an object that comes from one. It asks
// even those who were asked before, because they may have the object by now.
func (x *Index) findAllProviders(ctx context.Context, address b3.Address) []rank.Ranked {
	return x.lookForProviders(ctx, address, x.settings.Load().DHT.deadline(), transfer.MaxSources)
}

// lookForProviders asks for providers until there are enough, or the time is over.
func (x *Index) lookForProviders(ctx context.Context, address b3.Address, within time.Duration, enough int) []rank.Ranked {
	cfg := x.settings.Load()
	short, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	plan := x.plan(cfg, record.Question{Kind: record.CID, Address: address}, 0, 0, enough)
	plan.MayHedge = func() bool { return true }
	out, _ := hedge.Run(short, x.racers, plan) // what was found in time is enough, or the transfer asks again
	return x.rank(out.Answer.Providers, "", time.Now())
}

// partSources is the sources that can send parts.
func (x *Index) partSources(address b3.Address, sources []fetchSource) (list []transfer.Source) {
	for _, one := range sources {
		if one.part == nil {
			continue
		}
		list = append(list, transfer.Source{ID: one.label, Label: one.label, Parts: one.parts, Open: func(ctx context.Context, from, length int64) (io.ReadCloser, error) {
			return one.part(ctx, oap.Whole, from, length)
		}, Blame: func(err error) { x.recordOffence(one, offenceIn(err)+" "+address.String()) }})
	}
	return list
}

// treeUnit is what one permit for trees in memory stands for.
const treeUnit = 1 << 20

// treeUnits is how many permits a tree takes; none takes none.
func treeUnits(bytes int64) int { return int((bytes + treeUnit - 1) / treeUnit) }

// treePause is how long a transfer waits before it looks again whether there is
// memory for its tree.
const treePause = 100 * time.Millisecond

// readTree reads the tree of an object from a source, and the size that it
// states. Both are proven. Its permits belong to the caller, if there is a tree.
// While other trees take the memory, it waits.
func (x *Index) readTree(ctx context.Context, address b3.Address, from fetchSource) (b3.Outboard, int64, error) {
	if from.part == nil {
		return nil, 0, fault.New(opFetch, fault.NotFound, "it serves no parts")
	}
	permits := x.gatewayClient.treePermits
	for {
		body, size, err := openTree(ctx, from)
		if err != nil {
			return nil, 0, err
		}
		need := treeUnits(b3.OutboardSize(size))
		if got := permits.TryAcquire(need); got < need {
			_ = body.Close() // it is asked for again
			permits.ReleaseMany(got)
			if flow.Sleep(ctx, treePause) != nil {
				return nil, 0, flow.Ended(ctx, opFetch)
			}
			continue
		}
		tree, err := b3.ReadOutboard(address, size, body)
		_ = body.Close() // it was read, or the error is known
		if err != nil {
			permits.ReleaseMany(need)
			return nil, 0, fault.Wrap(opFetch, err)
		}
		return tree, size, nil
	}
}

// treeKeeper is a store that keeps the tree beside what has arrived.
type treeKeeper interface {
	KeptTree(address b3.Address) (io.ReadCloser, error)
}

// keptTree reads the tree that is kept beside what has arrived of an object, as
// readTree does.
func (x *Index) keptTree(ctx context.Context, address b3.Address) (b3.Outboard, int64, error) {
	at, keeps := x.spec.Store.(treeKeeper)
	if !keeps {
		return nil, 0, fault.New(opFetch, fault.NotFound, "the store keeps no trees")
	}
	here := fetchSource{part: func(context.Context, oap.View, int64, int64) (io.ReadCloser, error) { return at.KeptTree(address) }}
	return x.readTree(ctx, address, here)
}

// openTree begins to read a tree, and returns the size that it states, which may
// be wrong.
func openTree(ctx context.Context, from fetchSource) (io.ReadCloser, int64, error) {
	body, err := from.part(ctx, oap.Tree, 0, 0)
	if err != nil {
		return nil, 0, err
	}
	var header [8]byte
	if _, err := io.ReadFull(body, header[:]); err != nil {
		_ = body.Close() // the error is known
		return nil, 0, fault.Wrap(opFetch, err)
	}
	size := binary.LittleEndian.Uint64(header[:])
	if size <= b3.GroupSize || size > maxProvenBytes {
		_ = body.Close() // it is not read
		return nil, 0, fault.New(opFetch, fault.UpstreamFailed, "its tree states a size of %d bytes; the maximum is %d", size, int64(maxProvenBytes))
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(header[:]), body), body}, int64(size), nil
}

// part asks a gateway for some bytes.
func (g *gatewayClient) part(ctx context.Context, base string, address b3.Address, view oap.View, from, length int64) (io.ReadCloser, error) {
	base, err := originOf(base)
	if err != nil {
		return nil, err
	}
	if length == 0 {
		body, _, err := g.get(ctx, base, base+"/o/"+address.String()+string(view), "")
		if err != nil {
			return nil, err
		}
		return body, nil
	}
	body, _, err := g.get(ctx, base, base+"/o/"+address.String()+string(view), "bytes="+strconv.FormatInt(from, 10)+"-"+strconv.FormatInt(from+length-1, 10))
	if err != nil {
		return nil, err
	}
	if begin, _, ranged := body.contentRange(); !ranged || begin != from {
		_ = body.Close() // it is not read
		return nil, fault.New(opFetch, fault.Malformed, "%s serves no ranges", base)
	}
	return body, nil
}

// contentRange returns where a part begins in the object, and how long the
// object is, as the gateway says; false if it sends all of it.
func (i *idleTimeoutBody) contentRange() (begin, total int64, ok bool) {
	if i.status != http.StatusPartialContent {
		return 0, 0, false
	}
	spec, whole, found := strings.Cut(strings.TrimPrefix(i.rangeHeader, "bytes "), "/")
	first, _, dashed := strings.Cut(spec, "-")
	begin, err := strconv.ParseInt(first, 10, 64)
	total, wrong := strconv.ParseInt(whole, 10, 64)
	return begin, total, found && dashed && err == nil && wrong == nil && begin >= 0 && total > begin
}

// arrivals is the objects that are on their way and can be read.
type arrivals struct {
	mu      sync.Mutex //lockblock:leaf a map, and a channel that is closed
	running map[b3.Address]*transfer.Transfer
	changed chan struct{} // closed at the next change; nil if nobody waits
	broken  map[b3.Address]brokenTransfer
	copied  map[b3.Address]int64 // of fetches that end just now: bytes that an older version had
}

// noteCopied notes how many bytes of an object an older version had that is here.
// The fetch of the object takes the note.
func (a *arrivals) noteCopied(address b3.Address, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n == 0 {
		return
	}
	if a.copied == nil {
		a.copied = map[b3.Address]int64{}
	}
	a.copied[address] = n
}

// takeCopied takes what was noted.
func (a *arrivals) takeCopied(address b3.Address) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.copied[address]
	delete(a.copied, address)
	return n
}

// brokenTransfer is why a transfer did not complete, and when.
type brokenTransfer struct {
	err error
	at  time.Time
}

// The bounds of what is remembered of transfers that broke.
const (
	maxBroken = 64
	brokenAge = 10 * time.Minute
)

// ended remembers why a transfer did not complete: the next one may only find
// that nobody has the object.
func (a *arrivals) ended(address b3.Address, err error, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch kind := fault.KindOf(err); {
	case err == nil:
		delete(a.broken, address)
		return
	case kind != fault.UpstreamFailed && kind != fault.IntegrityFail:
		return // it was ended here
	case a.broken == nil:
		a.broken = map[b3.Address]brokenTransfer{}
	}
	a.broken[address] = brokenTransfer{err, now}
	for len(a.broken) > maxBroken {
		oldest := address
		for one, was := range a.broken {
			if was.at.Before(a.broken[oldest].at) {
				oldest = one
			}
		}
		delete(a.broken, oldest)
	}
}

// brokeWith reports whether an error is that of the last transfer of an object.
func (a *arrivals) brokeWith(address b3.Address, err error) bool {
	return errors.Is(err, a.brokenBy(address, time.Now()))
}

// brokenBy returns why the last transfer of an object broke, or nil.
func (a *arrivals) brokenBy(address b3.Address, now time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if was, broke := a.broken[address]; broke && now.Sub(was.at) < brokenAge {
		return was.err
	}
	return nil
}

func (a *arrivals) begin(address b3.Address, t *transfer.Transfer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running == nil {
		a.running = map[b3.Address]*transfer.Transfer{}
	}
	a.running[address] = t
	if a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
}

func (a *arrivals) end(address b3.Address, t *transfer.Transfer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running[address] == t {
		delete(a.running, address)
	}
}

// list returns how far each transfer is, by its address.
func (a *arrivals) list() map[b3.Address]transfer.Progress {
	a.mu.Lock()
	running := maps.Clone(a.running)
	a.mu.Unlock()
	all := make(map[b3.Address]transfer.Progress, len(running))
	for address, t := range running {
		all[address] = t.Progress()
	}
	return all
}

// find returns the transfer of an object, and what is closed when that may
// have changed.
func (a *arrivals) find(address b3.Address) (*transfer.Transfer, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.running[address]; t != nil {
		return t, nil
	}
	if a.changed == nil {
		a.changed = make(chan struct{})
	}
	return nil, a.changed
}

// Arriving opens an object that is being fetched and can be read already. It is
// NotFound if none is. What is read waits for its bytes as long as ctx allows.
// The caller must close it.
func (x *Index) Arriving(ctx context.Context, address b3.Address) (store.Handle, error) {
	if t, _ := x.arrivals.find(address); t != nil {
		return transfer.NewArriving(ctx, t, x.spec.Store.Open), nil
	}
	return nil, fault.New(opFetch, fault.NotFound, "%s is not on its way", address)
}

// ArrivingHere opens an object that is being fetched, for another node: a read of
// what is not here yet is NotReady. It is NotFound if none is. The caller must
// close it.
func (x *Index) ArrivingHere(ctx context.Context, address b3.Address) (*transfer.Arriving, error) {
	if t, _ := x.arrivals.find(address); t != nil {
		return transfer.NewHere(ctx, t, x.spec.Store.Open), nil
	}
	return nil, fault.New(opFetch, fault.NotFound, "%s is not on its way", address)
}

// IsArriving reports whether an object that is being fetched can be read
// already, and returns what is closed when that may have changed.
func (x *Index) IsArriving(address b3.Address) (is bool, changed <-chan struct{}) {
	t, changed := x.arrivals.find(address)
	return t != nil, changed
}

// OpenOrFetch opens an object, and fetches it first if it is not here. It
// returns as soon as something of it can be read. The fetch goes on for a while
// after the handle is closed: a reader whose connection broke, or whose user
// pressed Ctrl-C and thought better of it, finds what has arrived.
func (x *Index) OpenOrFetch(ctx context.Context, address b3.Address) (store.Handle, error) {
	if handle, err := x.spec.Store.Open(ctx, address); fault.KindOf(err) != fault.NotFound {
		return handle, err
	}
	whole, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	err := x.racers.Go(func(context.Context) error {
		_, _, err := x.Fetch(whole, address)
		done <- err
		return nil
	})
	if err != nil {
		stop()
		return nil, fault.Wrap(opFetch, err)
	}
	for {
		t, changed := x.arrivals.find(address)
		if t != nil {
			return transfer.NewArriving(ctx, t, x.spec.Store.Open).OnClose(func() {
				time.AfterFunc(fetchLinger, stop) //lockblock:allow it only ends a context
			}), nil
		}
		select {
		case err := <-done:
			stop()
			if err != nil {
				return nil, err
			}
			return x.spec.Store.Open(ctx, address)
		case <-changed:
		case <-ctx.Done():
			stop()
			return nil, flow.Ended(ctx, opFetch)
		}
	}
}
