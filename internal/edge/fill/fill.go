package fill

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"micronode/fault"
	"micronode/internal/disk"
	"micronode/internal/edge/fill/freshness"
	"micronode/internal/flow"
	"micronode/internal/store"
	"micronode/internal/supervise"
)

// job is a flight that a worker runs.
type job struct {
	cache  *Cache
	flight *flight
}

// Run fills. If the worker is killed meanwhile, the flight is not completed:
// the pool retries or abandons the job.
func (j *job) Run(ctx context.Context) {
	select {
	case <-j.flight.done:
		return // completed already: the cache is closing, or this is a retry of a job that had succeeded
	default:
	}
	out := j.cache.fill(ctx, j.flight)
	if out.err != nil && errors.Is(context.Cause(ctx), supervise.ErrKilled) {
		return
	}
	if fault.KindOf(out.err) == fault.Canceled && !errors.Is(out.err, errGivenUp) {
		out.err = drainingFault() // what a cancelled worker means to the waiters
	}
	j.cache.complete(j.flight, out)
}

// Idempotent is true: fetching twice does no harm.
func (j *job) Idempotent() bool { return true }

// Abandon fails the waiters of a flight that no worker will run.
func (j *job) Abandon(err error) {
	j.cache.complete(j.flight, outcome{err: fault.WrapKind(opFill, fault.NotReady, err)})
}

// fill fetches the object of a flight, with retries. It uses the policy at its
// start and takes no longer than that allows, with or without waiters.
func (c *Cache) fill(ctx context.Context, f *flight) outcome {
	p, began := c.policy.Load(), time.Now()
	a := &originFetch{cache: c, policy: p, flight: f}
	defer a.close()
	out := a.run(ctx)
	c.reportFill(f, out, a.revalidated, time.Since(began))
	return out
}

// reportFill counts a fill and reports it to the audit. Get counts failures for
// each waiter; they are counted here only for background fills.
func (c *Cache) reportFill(f *flight, out outcome, renewed bool, took time.Duration) {
	event := Event{URL: f.target.redacted(), Took: took}
	switch {
	case errors.Is(out.err, errGivenUp):
		c.spec.Counters.GivenUp()
		return
	case out.err != nil || out.failed:
		if f.background {
			c.reportFailure(out, event)
		}
		return
	case renewed:
		event.Type, event.Status = EventRevalidated, http.StatusNotModified
	default:
		event.Type, event.Status = EventFilled, out.entry.resp.Status
	}
	event.Bytes = out.entry.size
	c.spec.Counters.Filled(took)
	c.spec.OnEvent(event)
}

// reportFailure counts a fill that ended in an error, or in a failing response.
func (c *Cache) reportFailure(out outcome, event Event) {
	if out.err != nil {
		event.Status = statusOf(out.err)
		_ = c.countRefusal(out.err, event)
		return
	}
	event.Status = out.entry.resp.Status
	c.countRelayed(event)
}

// originFetch is one fill with all its tries.
type originFetch struct {
	// set at construction
	cache  *Cache
	policy *policy
	flight *flight

	// owned by the worker
	stored      *entry       // the entry to revalidate
	handle      store.Handle // its body, open, so that it cannot be evicted meanwhile
	revalidated bool
	storeErr    error         // why the store did not accept the body
	backoff     time.Duration // before the next try
}

// run tries until the fill succeeds or a retry is pointless.
func (o *originFetch) run(ctx context.Context) outcome {
	if err := o.openStored(ctx); err != nil {
		return outcome{err: err}
	}
	for n := 0; ; n++ {
		out, err := o.attempt(ctx, n)
		if err == nil {
			return out
		}
		if op := timedOutIn(err); op != "" {
			o.cache.spec.Counters.TimedOut(op)
		}
		last := n+1 >= o.policy.Tries
		if errors.Is(err, errEvicted) && !last || errors.Is(err, errNotStored) || errors.Is(err, errWrong304) {
			continue
		}
		if statusOf(err) == 0 && !(isTransient(err) && o.canRetry(n, err)) {
			return outcome{err: err}
		}
		if !o.cache.hasWaiters(o.flight) {
			return outcome{err: err} // no waiters: the current try is finished for the next request, but not retried
		}
		o.cache.spec.Counters.Retry()
		if flow.Sleep(ctx, o.backoff) != nil {
			return outcome{err: ended(ctx)}
		}
	}
}

// canRetry reports whether there is a next try, and sets the pause before it.
// If the origin wants a longer pause than our maximum, there is none, and the
// client gets its Retry-After.
func (o *originFetch) canRetry(n int, err error) bool {
	o.backoff = max(o.policy.backoff(n), fault.RetryAfterOf(err))
	return n+1 < o.policy.Tries && o.backoff <= o.policy.maxBackoff(maxTries)
}

// openStored opens the stored entry, if it has a validator to revalidate it
// with.
func (o *originFetch) openStored(ctx context.Context) (err error) {
	stored := o.cache.find(o.flight.key, o.flight.forwarded)
	if stored == nil || len(freshness.Conditions(stored.resp)) == 0 {
		return nil
	}
	o.handle, err = o.cache.open(ctx, stored)
	if o.handle != nil {
		o.stored = stored
	}
	return err
}

// close releases the stored body.
func (o *originFetch) close() {
	if o.handle != nil {
		_ = o.handle.Close() // nothing was written
		o.handle = nil
	}
}

// attempt asks the origin once; the try has a time-out that restarts with every
// progress. A 503 or 504 is an error if there is time to retry, and the answer
// if there is not. One with a lifetime of its own is always the answer.
func (o *originFetch) attempt(ctx context.Context, n int) (out outcome, err error) {
	member := o.flight.client.Load()
	ctx, alarm := o.newFillTimer(ctx)
	defer alarm.stop()
	got, err := o.policy.fetch(ctx, o.flight.target, o.requestHeader(), func(host string) (func(error), error) { return o.cache.breakers.AllowFrom(host, member) })
	if err != nil {
		return outcome{}, err
	}
	defer func() { got.report(breakerVerdict(err, true)) }()
	defer func() { _ = got.Body.Close() }()
	alarm.size = got.ContentLength
	alarm.progress(1)
	got.Body = progressReader{ReadCloser: got.Body, timer: alarm, report: got.report}
	if down := o.cache.spec.Bandwidth.Down(); down != nil && !got.onThisMachine {
		got.Body = pacedReader{got.Body, alarm, down, &o.cache.share}
	}
	resp := freshness.Response{Status: got.StatusCode, Header: got.Header, RequestTime: got.sentAt, ResponseTime: got.receivedAt}
	switch {
	case got.StatusCode == http.StatusNotModified:
		return o.revalidate(got, resp)
	case got.StatusCode == http.StatusPartialContent, got.StatusCode == http.StatusOK && isPart(got.Response):
		return outcome{}, upstreamFault(nil, "the origin sent a part instead of the whole")
	case got.StatusCode < 200:
		return outcome{}, upstreamFault(nil, "the origin sent a status that is not final")
	}
	if !freshness.HasETag(got.Header) {
		delete(got.Header, "Etag") // an invalid one could not be used for revalidation
	}
	shared := o.isStorable(got, resp)
	if isTransientStatus(got.StatusCode) && !shared {
		if err := statusFault(got); o.canRetry(n, err) {
			return outcome{}, err
		}
	}
	return o.storeBody(ctx, got, resp, shared)
}

// requestHeader is the header that is sent to the origin.
func (o *originFetch) requestHeader() http.Header {
	header := make(http.Header, len(o.flight.forwarded)+4)
	for name, values := range o.flight.forwarded {
		header[name] = values
	}
	if len(header["User-Agent"]) == 0 {
		header["User-Agent"] = []string{ourName}
	}
	header["Via"] = []string{"1.1 " + ourName}
	if o.stored != nil {
		for name, values := range freshness.Conditions(o.stored.resp) {
			header[name] = values
		}
	}
	return header
}

// revalidate handles a 304: the stored entry is still valid. If the 304 is for
// another entity, the object is fetched again without conditions.
func (o *originFetch) revalidate(got originResponse, resp freshness.Response) (outcome, error) {
	if o.stored == nil {
		return outcome{}, refuse(ReasonValidator, fault.Wrap(opOrigin, freshness.ErrValidator))
	}
	updated, err := freshness.Update(o.stored.resp, resp)
	if err != nil {
		o.close()
		o.stored = nil
		return outcome{}, errWrong304
	}
	updated.Header = o.policy.relayedHeader(updated, true)
	fresh := o.stored.revalidated(updated, got.redirectUntil)
	o.revalidated = true
	shared := o.isStorable(got, updated)
	out := outcome{entry: fresh, store: o.cache.spec.Store, bodyHandle: newSharedHandle(o.handle), shared: shared, hitForMiss: o.isHitForMiss(shared)}
	o.handle = nil
	return out, nil
}

// isStorable decides whether other requests may use an answer.
//
// A body that ends with the connection may be truncated unnoticed, so it is
// never stored (RFC 9112, 8).
func (o *originFetch) isStorable(got originResponse, resp freshness.Response) bool {
	endless := got.ProtoMajor < 2 && got.ContentLength < 0 && len(got.TransferEncoding) == 0
	return !o.flight.noStore && !got.noStore && !endless && o.policy.storable(o.flight.forwarded, resp)
}

// storeBody reads the body into the store that may hold it.
func (o *originFetch) storeBody(ctx context.Context, got originResponse, resp freshness.Response, shared bool) (outcome, error) {
	content, err := newOriginBody(got.Response, &o.policy.Config)
	if err != nil {
		return outcome{}, err
	}
	defer content.close()
	if shared && o.storeErr == nil {
		o.storeErr = o.cache.storeFailure()
	}
	into := o.cache.spec.Store
	if !shared || o.storeErr != nil {
		into = o.cache.spec.Transient
	}
	resp.Header = o.policy.relayedHeader(resp, shared)
	if len(resp.Header["Date"]) == 0 {
		resp.Header["Date"] = []string{freshness.FormatDate(got.receivedAt)} // RFC 9110, 6.6.1
	}
	body := o.startStreaming(got, resp, shared)
	rest := &tee{content, body}
	out, err := o.put(ctx, into, rest, sizeOf(got.ContentLength))
	if err != nil {
		err = o.storeFault(ctx, content, into, err)
	}
	if replayed, all := body.replay(); all && errors.Is(err, errNotStored) { // nobody has to be asked again
		into = o.cache.spec.Transient
		if out, err = o.put(ctx, into, io.MultiReader(replayed, rest), sizeOf(got.ContentLength)); err != nil {
			err = o.storeFault(ctx, content, into, err)
		}
	}
	if err != nil {
		o.cache.failBody(o.flight, body, err)
		return outcome{}, err
	}
	if out.bodyRetained = shared && into == o.cache.spec.Store; out.bodyRetained {
		o.cache.retainBody(out.bodyHandle.handle.Address())
	}
	e := newEntry(o.flight.key, o.flight.forwarded, resp, got.redirectUntil)
	e.address, e.size = out.bodyHandle.handle.Address(), out.bodyHandle.handle.Size()
	out.entry, out.store, out.shared, out.body = e, into, shared, body
	if out.failed = !shared && got.StatusCode >= 500; out.failed {
		out.sharedFailure = !o.isPersonal(got)
	} else {
		out.hitForMiss = o.isHitForMiss(shared)
	}
	return out, nil
}

// put stores a body and opens it.
func (o *originFetch) put(ctx context.Context, into store.Store, content io.Reader, size int64) (outcome, error) {
	info, _, err := into.Put(ctx, content, store.PutOptions{Size: size, Class: store.Cached})
	if err != nil {
		return outcome{}, err
	}
	handle, err := into.Open(context.WithoutCancel(ctx), info.Address)
	if err != nil {
		return outcome{}, openFault(err)
	}
	return outcome{bodyHandle: newSharedHandle(handle)}, nil
}

// startStreaming lets waiters read the body while it arrives, if the status is
// 200 and the fill is not in the background. Bodies of other statuses are
// short.
func (o *originFetch) startStreaming(got originResponse, resp freshness.Response, shared bool) *streamingBody {
	if o.flight.background || got.StatusCode != http.StatusOK {
		return nil
	}
	e := newEntry(o.flight.key, o.flight.forwarded, resp, got.redirectUntil)
	g := newStreamingBody(e, sizeOf(got.ContentLength), shared, &o.cache.streaming)
	if !o.cache.publishBody(o.flight, g) {
		return nil
	}
	return g
}

// isPersonal reports whether an answer that is not stored is for the leader
// only, and not for the other waiters either.
func (o *originFetch) isPersonal(got originResponse) bool {
	directives := freshness.ResponseDirectives(got.Header)
	return o.flight.noStore || got.noStore || isPersonalRequest(o.flight.forwarded) || directives.NoStore || directives.Private || len(got.Header["Set-Cookie"]) > 0
}

// isHitForMiss reports whether the origin, and not just this one request,
// forbids that an answer is stored.
func (o *originFetch) isHitForMiss(shared bool) bool {
	return !shared && !o.flight.noStore && !isPersonalRequest(o.flight.forwarded)
}

// storeFault says why a body was not stored: a fault of the body takes
// precedence over one of the store. A disk that is full or fails does not fail
// the request: the origin is asked once more, and its answer is served without
// being stored.
func (o *originFetch) storeFault(ctx context.Context, content *originBody, into store.Store, err error) error {
	_, decided := errors.AsType[*refusal](content.err)
	switch kind := fault.KindOf(err); {
	case errors.Is(err, errEvicted):
		return err
	case ctx.Err() != nil && !decided:
		return ended(ctx)
	case content.err != nil:
		return content.err
	case o.storeErr != nil:
		return fault.Wrap(opFill, o.storeErr) // the other store has no space either
	case into != o.cache.spec.Transient && (disk.IsFull(err) || kind == fault.StorageBusy):
		o.storeErr = err
		o.cache.storeFailed.Store(&storeFailureState{err, time.Now().Add(storeBackoff)})
		o.cache.spec.Counters.WriteFailed()
		return errNotStored
	case kind == fault.StoreFull || kind == fault.BodyTooLarge:
		return o.noRoom(err)
	case kind == fault.Malformed:
		return upstreamFault(err, "the origin sent another number of bytes than it declared")
	default:
		return fault.Wrap(opFill, err)
	}
}

// noRoom says that a body does not fit.
func (o *originFetch) noRoom(cause error) error {
	err := &fault.Error{Op: opFill, Kind: fault.StoreFull, Err: cause, Detail: "the body of the origin does not fit into edge.cache.max_bytes",
		Next: "Fetch it from the origin itself, or ask the operator to raise edge.cache.max_bytes."}
	if !o.cache.spec.Amnesia {
		return refuse(ReasonBody, err)
	}
	err.Detail = "the body of the origin does not fit into memory, and amnesia mode has no disk"
	err.Next = "Ask the operator to raise edge.cache.max_bytes, or to run the node with --persist."
	return refuse(ReasonAmnesia, err)
}

// errNotStored says that the store failed, and that a try without it makes
// sense.
var errNotStored = errors.New("the store refuses it")

// errWrong304 says that the origin sent a 304 for an entity that we do not
// have. It is asked again, without conditions.
var errWrong304 = errors.New("the 304 does not match the request")

// errGivenUp says that nobody waits for a body that is far from complete.
var errGivenUp = errors.New("nobody waits for it")

// errEvicted says that the store evicted a body between Put and Open.
var errEvicted = errors.New("evicted before it could be read")

func openFault(err error) error {
	if fault.KindOf(err) == fault.NotFound {
		return &fault.Error{Op: opFill, Kind: fault.StoreFull, Err: errors.Join(errEvicted, err), Detail: "the cache is too small: the body was evicted before it could be read"}
	}
	return fault.Wrap(opFill, err)
}
