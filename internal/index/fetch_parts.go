package index

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
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

// transferPatience is how long a transfer waits for its sources: as long as a
// link is away when somebody pulls a cable, and finds the right one again.
const transferPatience = 75 * time.Second

// openPart opens some bytes of an object, or of a view of it, at one source. They
// are not verified. A length of 0 is all.
type openPart func(ctx context.Context, view oap.View, from, length int64) (io.ReadCloser, error)

// receive stores the object that one source has begun to send: its head whole,
// and then, if there is more, in parts from all sources.
// The bounded context is for what comes in order.
func (x *Index) receive(ctx, bounded context.Context, address b3.Address, opened *fetchAttempt, sources []fetchSource) (store.Info, bool, error) {
	if !opened.body.head {
		return x.storeBody(bounded, address, opened)
	}
	head := make([]byte, headSize)
	n, err := io.ReadFull(opened.body, head)
	head = head[:n]
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		whole := *opened
		whole.body = objectBody{ReadCloser: struct {
			io.Reader
			io.Closer
		}{bytes.NewReader(head), opened.body}, size: store.Unknown}
		return x.storeBody(bounded, address, &whole)
	}
	opened.close()
	if err == nil {
		info, created, done, err := x.transfer(ctx, address, opened.source, head, sources)
		if done {
			return info, created, err
		}
	}
	// It has no tree, or too many are in memory, or it broke off: all of it, in
	// order.
	own, stop := context.WithCancel(bounded)
	begun := time.Now()
	body, err := opened.source.openWhole(own)
	if err != nil {
		stop()
		return store.Info{}, false, err
	}
	return x.storeBody(bounded, address, &fetchAttempt{source: opened.source, body: body, took: time.Since(begun), cancel: stop})
}

// transfer fetches an object in parts. It reports false if that cannot be, for
// want of its tree.
func (x *Index) transfer(ctx context.Context, address b3.Address, first fetchSource, head []byte, sources []fetchSource) (info store.Info, created, done bool, err error) {
	permits := x.gatewayClient.treePermits
	if permits.TryAcquire(1) == 0 {
		return store.Info{}, false, false, nil
	}
	defer permits.Release()
	tree, size, err := readTree(ctx, first)
	if err != nil {
		if offenceIn(err) != "" {
			x.recordOffence(first, "its proof does not match the object")
		}
		return store.Info{}, false, false, nil
	}
	arrival := new(store.Arrival)
	spec := transfer.Spec{
		Address: address, Size: size, Tree: tree, Head: head, Sources: partSources(sources), Arrival: arrival, Patience: transferPatience, Go: x.racers.Go,
		More: func(ctx context.Context) []transfer.Source {
			x.forget(record.Question{Kind: record.CID, Address: address})
			ranked, _, err := x.findProviders(ctx, address)
			if err != nil {
				return nil
			}
			return partSources(x.fetchSources(x.newAllowance(), address, ranked))
		},
		Failed: func(s transfer.Source, wasted int64, err error) {
			x.metrics.wasted.Add(float64(wasted))
			for _, one := range sources {
				if lie := offenceIn(err); lie != "" && one.label == s.ID {
					x.recordOffence(one, lie+" "+address.String())
				}
			}
		},
	}
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
	info, created, err = x.spec.Store.Put(ctx, running, store.PutOptions{Want: address, Size: size, Class: store.Cached, Arrival: arrival})
	now := time.Now()
	x.providers.observe(first.id, now.Sub(begun), err == nil, now)
	if err == nil {
		x.audit(Event{Type: Fetched, Key: address.String(), Detail: strconv.Itoa(running.Progress().Sources) + " sources in " + now.Sub(begun).Round(time.Millisecond).String()})
		x.added(address)
	}
	return info, created, true, err
}

// partSources is the sources that can send parts.
func partSources(sources []fetchSource) (list []transfer.Source) {
	for _, one := range sources {
		if one.part == nil {
			continue
		}
		list = append(list, transfer.Source{ID: one.label, Label: one.label, Open: func(ctx context.Context, from, length int64) (io.ReadCloser, error) {
			return one.part(ctx, oap.Whole, from, length)
		}})
	}
	return list
}

// readTree reads the tree of an object from a source, and the size that it
// states.
func readTree(ctx context.Context, from fetchSource) (b3.Outboard, int64, error) {
	if from.part == nil {
		return nil, 0, fault.New(opFetch, fault.NotFound, "it serves no parts")
	}
	body, err := from.part(ctx, oap.Tree, 0, 0)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = body.Close() }() // what it sent is verified
	raw, err := io.ReadAll(io.LimitReader(body, maxTreeBytes+1))
	if err != nil {
		return nil, 0, fault.Wrap(opFetch, err)
	}
	tree := b3.Outboard(raw)
	size, ok := transfer.Size(tree)
	if !ok {
		return nil, 0, fault.New(opFetch, fault.UpstreamFailed, "its tree has %d bytes, which is not what it states or more than %d", len(raw), maxTreeBytes)
	}
	return tree, size, nil
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

// Progress is how far the fetch of an object is; false if none runs that knows.
func (x *Index) Progress(address b3.Address) (transfer.Progress, bool) {
	if t, _ := x.arrivals.find(address); t != nil {
		return t.Progress(), true
	}
	return transfer.Progress{}, false
}
