package fill

import (
	"context"
	"errors"
	"net/http"
	"time"

	"micronode/fault"
	"micronode/internal/disk"
	"micronode/internal/edge/fill/freshness"
	"micronode/internal/flow"
	"micronode/internal/store"
	"micronode/internal/supervise"
)

// job is a flight in the hands of a worker.
type job struct {
	cache  *Cache
	flight *flight
}

// Run fills. If the worker is killed meanwhile, nothing is settled: the pool
// tries again or abandons the job.
func (j *job) Run(ctx context.Context) {
	select {
	case <-j.flight.done:
		return // somebody was first: the cache is closing, or it is a second try of what had worked
	default:
	}
	out := j.cache.fill(ctx, j.flight)
	if out.err != nil && errors.Is(context.Cause(ctx), supervise.ErrKilled) {
		return
	}
	if fault.KindOf(out.err) == fault.Canceled {
		out.err = draining() // to those who wait, that is what it means
	}
	j.cache.settle(j.flight, out)
}

// Idempotent is true: to fetch twice does no harm.
func (j *job) Idempotent() bool { return true }

// Abandon tells those who wait that nobody will fill.
func (j *job) Abandon(err error) {
	j.cache.settle(j.flight, outcome{err: fault.WrapKind(opFill, fault.NotReady, err)})
}

// fill fetches what a flight is for, trying again where that makes sense. It
// goes by the policy of this moment, and takes no longer than that allows,
// whoever waits or does not.
func (c *Cache) fill(ctx context.Context, f *flight) outcome {
	p, began := c.policy.Load(), time.Now()
	ctx, cancel := context.WithTimeout(ctx, p.budget())
	defer cancel()
	a := &attempt{cache: c, policy: p, flight: f}
	defer a.close()
	out := a.run(ctx)
	if out.err == nil {
		c.spec.Counters.Filled(time.Since(began))
	} else if f.background {
		_ = c.refused(out.err, Event{URL: f.target.shown(), Status: statusOf(out.err), Took: time.Since(began)})
	}
	if out.err == nil {
		event := Event{Type: EventFilled, URL: f.target.shown(), Status: out.entry.resp.Status, Bytes: out.entry.size, Took: time.Since(began)}
		if a.renewed {
			event.Type, event.Status = EventRevalidated, http.StatusNotModified
		}
		c.spec.Note(event)
	}
	return out
}

// attempt is one fill: all its tries.
type attempt struct {
	// set at construction
	cache  *Cache
	policy *policy
	flight *flight

	// owned by the worker
	held    *entry       // what we have already, to be confirmed
	handle  store.Handle // its body, open, so that nobody evicts it meanwhile
	renewed bool
	unkept  error // why the store did not take the body
}

// run tries, and pauses, and tries again.
func (a *attempt) run(ctx context.Context) outcome {
	if err := a.hold(ctx); err != nil {
		return outcome{err: err}
	}
	for try := 0; ; try++ {
		out, err := a.try(ctx)
		if err == nil {
			return out
		}
		last := try+1 >= a.policy.Tries
		if errors.Is(err, errGone) && !last || errors.Is(err, errUnkept) {
			continue
		}
		pause := max(a.policy.pause(try), fault.RetryAfterOf(err))
		if left, _ := flow.Remaining(ctx); last || !passing(err) || pause >= left {
			return outcome{err: err}
		}
		a.cache.spec.Counters.Retry()
		if flow.Sleep(ctx, pause) != nil {
			return outcome{err: ended(ctx)}
		}
	}
}

// hold opens what we have already, if the origin can be asked whether it is
// still right.
func (a *attempt) hold(ctx context.Context) (err error) {
	held := a.cache.find(a.flight.key, a.flight.sent)
	if held == nil || len(freshness.Conditions(held.resp)) == 0 {
		return nil
	}
	a.handle, err = a.cache.open(ctx, held)
	if a.handle != nil {
		a.held = held
	}
	return err
}

// close lets go of what was held.
func (a *attempt) close() {
	if a.handle != nil {
		_ = a.handle.Close() // nothing was written
		a.handle = nil
	}
}

// try asks once, within the time that one try has.
func (a *attempt) try(ctx context.Context) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, a.policy.Timeout)
	defer cancel()
	got, err := a.policy.get(ctx, a.flight.target, a.request())
	if err != nil {
		return outcome{}, err
	}
	defer func() { _ = got.Body.Close() }()
	resp := freshness.Response{Status: got.StatusCode, Header: got.Header, RequestTime: got.asked, ResponseTime: got.came}
	if err := checkValidator(got.Header); err != nil {
		return outcome{}, err
	}
	switch {
	case got.StatusCode == http.StatusNotModified:
		return a.renew(got, resp)
	case got.StatusCode == http.StatusPartialContent:
		return outcome{}, upstream(nil, "the origin sent a part, and was asked for the whole")
	case got.StatusCode < 200 || got.StatusCode > 599:
		return outcome{}, upstream(nil, "the origin answered with a status that does not exist")
	}
	shared := a.mayKeep(got, resp)
	if isPassing(got.StatusCode) || got.StatusCode >= 500 && !shared {
		return outcome{}, failing(got)
	}
	return a.take(ctx, got, resp, shared)
}

// request is the header that the origin gets to see.
func (a *attempt) request() http.Header {
	header := make(http.Header, len(a.flight.sent)+4)
	for name, values := range a.flight.sent {
		header[name] = values
	}
	if len(header["User-Agent"]) == 0 {
		header["User-Agent"] = []string{ourName}
	}
	header["Via"] = []string{"1.1 " + ourName}
	if a.held != nil {
		for name, values := range freshness.Conditions(a.held.resp) {
			header[name] = values
		}
	}
	return header
}

// checkValidator refuses an entity tag that is none: what it stands for could
// not be asked for again.
func checkValidator(header http.Header) error {
	tags := header["Etag"]
	if len(tags) == 0 || len(tags) == 1 && freshness.ValidETag(tags[0]) {
		return nil
	}
	return refuse(ReasonValidator, &fault.Error{Op: opOrigin, Kind: fault.IntegrityFail,
		Detail: "the origin sends an ETag that is none",
		Next:   "Ask the operator of the origin to send one ETag, in quotes, or none."})
}

// renew takes a 304: what we hold is still right.
func (a *attempt) renew(got received, resp freshness.Response) (outcome, error) {
	if a.held == nil {
		return outcome{}, refuse(ReasonValidator, fault.Wrap(opOrigin, freshness.ErrValidator))
	}
	updated, err := freshness.Update(a.held.resp, resp)
	if err != nil {
		a.cache.mu.Lock()
		gone := a.cache.index.drop(a.held) // the next one asks for the whole
		a.cache.mu.Unlock()
		if gone {
			a.cache.discard([]*entry{a.held})
		}
		return outcome{}, refuse(ReasonValidator, fault.Wrap(opOrigin, err))
	}
	updated.Header = a.policy.kept(updated.Header, true)
	fresh := a.held.renewed(updated, got.until)
	a.renewed = true
	shared := a.mayKeep(got, updated)
	out := outcome{entry: fresh, in: a.cache.spec.Store, loan: newLoan(a.handle), shared: shared, lonely: a.lonely(shared)}
	a.handle = nil
	return out, nil
}

// mayKeep decides whether others may use an answer.
//
// A body that ends with the connection has no end that one could know to be
// the right one, so it is never kept (RFC 9112, 8).
func (a *attempt) mayKeep(got received, resp freshness.Response) bool {
	endless := got.ProtoMajor < 2 && got.ContentLength < 0 && len(got.TransferEncoding) == 0
	return !a.flight.secret && !got.secret && !endless && a.policy.storable(a.flight.sent, resp)
}

// take reads the body and puts it where it may be.
func (a *attempt) take(ctx context.Context, got received, resp freshness.Response, shared bool) (outcome, error) {
	content, err := newBody(got.Response, &a.policy.Config)
	if err != nil {
		return outcome{}, err
	}
	defer content.close()
	if shared && a.unkept == nil {
		a.unkept = a.cache.storeFails()
	}
	into := a.cache.spec.Store
	if !shared || a.unkept != nil {
		into = a.cache.spec.Fleeting
	}
	size := store.Unknown
	if got.ContentLength >= 0 {
		size = got.ContentLength
	}
	info, _, err := into.Put(ctx, content, store.PutOptions{Size: size, Class: store.Cached})
	if err != nil {
		return outcome{}, a.unstored(ctx, content, into, err)
	}
	handle, err := into.Open(context.WithoutCancel(ctx), info.Address)
	if err != nil {
		return outcome{}, unopened(err)
	}
	lifted := shared && into == a.cache.spec.Store
	if lifted {
		a.cache.lift(info.Address)
	}
	resp.Header = a.policy.kept(resp.Header, shared)
	if len(resp.Header["Date"]) == 0 {
		resp.Header["Date"] = []string{freshness.FormatDate(got.came)} // RFC 9110, 6.6.1
	}
	e := newEntry(a.flight.key, a.flight.sent, resp, got.until)
	e.address, e.size = info.Address, info.Size
	return outcome{entry: e, in: into, shared: shared, lifted: lifted, lonely: a.lonely(shared), loan: newLoan(handle)}, nil
}

// lonely reports whether it is the origin, and not this one client, who does
// not want an answer to be kept.
func (a *attempt) lonely(shared bool) bool {
	return !shared && !a.flight.secret && !alone(a.flight.sent)
}

// unstored says why a body did not get into a store: what is wrong with it comes
// before what the store says. A disk that is full or does not work is no reason
// to answer with nothing: the origin is asked once more, and what it sends is
// given out without being kept.
func (a *attempt) unstored(ctx context.Context, content *body, into store.Store, err error) error {
	_, decided := errors.AsType[*refusal](content.failure)
	switch kind := fault.KindOf(err); {
	case ctx.Err() != nil && !decided:
		return ended(ctx)
	case content.failure != nil:
		return content.failure
	case a.unkept != nil:
		return fault.Wrap(opFill, a.unkept) // there is no room elsewhere either
	case into != a.cache.spec.Fleeting && (disk.IsFull(err) || kind == fault.StorageBusy):
		a.unkept = err
		a.cache.failing.Store(&failure{err, time.Now().Add(failingFor)})
		a.cache.spec.Counters.Unwritten()
		return errUnkept
	case kind == fault.StoreFull || kind == fault.BodyTooLarge:
		return a.noRoom(err)
	case kind == fault.Malformed:
		return upstream(err, "the origin sent another number of bytes than it said")
	default:
		return fault.Wrap(opFill, err)
	}
}

// noRoom says that a body does not fit.
func (a *attempt) noRoom(cause error) error {
	err := &fault.Error{Op: opFill, Kind: fault.StoreFull, Err: cause, Detail: "what the origin sends does not fit into edge.cache.max_bytes",
		Next: "Fetch it from the origin itself, or ask the operator to raise edge.cache.max_bytes."}
	if !a.cache.spec.Amnesia {
		return refuse(ReasonBody, err)
	}
	err.Detail = "what the origin sends does not fit into memory, and in amnesia there is no disk"
	err.Next = "Ask the operator to raise edge.cache.max_bytes, or to run the node with --persist."
	return refuse(ReasonAmnesia, err)
}

// errUnkept says that the store failed, and that it is worth a try without it.
var errUnkept = errors.New("the store does not keep it")

// errGone says that the store gave a body up between the moment when it was
// put and the moment when it was opened.
var errGone = errors.New("evicted before it could be read")

func unopened(err error) error {
	if fault.KindOf(err) == fault.NotFound {
		return &fault.Error{Op: opFill, Kind: fault.StoreFull, Err: errors.Join(errGone, err), Detail: "there is so little room that it did not last until it was read"}
	}
	return fault.Wrap(opFill, err)
}
