package loadgen

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/supervise"
)

// run is one measurement of a node.
type run struct {
	// set at construction
	workers  []*worker     // one for each connection
	duration time.Duration // of the whole run; then of one phase
	count    int64         // maximum number of iterations of one phase
	name     string        // of the box and the topic; it is unique
}

// phase is an operation to repeat for a while.
type phase struct {
	calls      []string // what it measures
	iterate    func(context.Context, *worker)
	skipReason string // why it cannot be measured; empty if it can
}

// measure runs all phases, fills in the report and cleans up. It returns the
// first error.
func (r *run) measure(ctx context.Context, status client.Status, into *Report) error {
	phases := r.phases(status)
	active := 0
	for _, one := range phases {
		if one.skipReason == "" {
			active++
		}
	}
	r.duration /= time.Duration(active)
	for _, one := range phases {
		if one.skipReason != "" {
			into.NotMeasured = append(into.NotMeasured, Skipped{strings.Join(one.calls, ", "), one.skipReason})
			continue
		}
		took := r.runPhase(ctx, r.duration, one.iterate)
		into.add(r.workers, took, one.calls...)
	}
	if err := r.cleanUp(ctx, into); err != nil {
		return err
	}
	return r.failure(into)
}

// phases lists the phases of a run.
func (r *run) phases(status client.Status) []phase {
	missingPart := func(there bool, part string) string {
		if there {
			return ""
		}
		return "the node has no " + part
	}
	return []phase{
		{calls: []string{"put"}, iterate: iteratePut},
		{calls: []string{"get"}, iterate: iterateGet},
		{calls: []string{"resolve"}, iterate: iterateResolve, skipReason: missingPart(hasPart(status, "index"), "index")},
		{calls: []string{"publish"}, iterate: r.iteratePublish, skipReason: missingPart(hasPart(status, "overlay"), "overlay")},
		{calls: []string{"send", "receive", "ack"}, iterate: r.iterateMailbox, skipReason: missingPart(hasPart(status, "mailbox"), "mailbox")},
	}
}

// hasPart reports whether the node has a part, in this process or in another
// one. A process that runs some parts has tasks that serve the others, so if
// there is a list of parts, it alone counts.
func hasPart(status client.Status, part string) bool {
	if len(status.Parts) > 0 {
		return slices.ContainsFunc(status.Parts, func(p client.Part) bool { return p.Name == part && p.Up })
	}
	return slices.ContainsFunc(status.Services, func(s client.Service) bool { return strings.HasPrefix(s.Name, part+" ") })
}

// runPhase makes all workers iterate until the duration or the count is
// reached, the context ends, or the worker aborts the phase. An iteration that
// has begun is finished, so that the run knows of everything that is left on
// the node.
func (r *run) runPhase(ctx context.Context, duration time.Duration, iterate func(context.Context, *worker)) time.Duration {
	begun := time.Now()
	var turns atomic.Int64
	r.runOnWorkers(func(w *worker) {
		w.abortPhase = false
		for ctx.Err() == nil && !w.abortPhase && time.Since(begun) < duration && turns.Add(1) <= r.count {
			iterate(ctx, w)
		}
	})
	return time.Since(begun)
}

// runOnWorkers calls do for all workers at the same time, and waits for all.
func (r *run) runOnWorkers(do func(*worker)) {
	const stage = "bench"
	supervisor, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: stage}}, DrainTimeout: time.Second})
	if err != nil {
		panic(err) // the options are constant
	}
	group, err := supervisor.NewGroup(supervise.GroupSpec{Service: "node", Kind: stage, Stage: stage, Max: len(r.workers)})
	if err != nil {
		panic(err)
	}
	for _, w := range r.workers {
		_ = group.Go(func(context.Context) error { do(w); return nil }) // the group has room for all
	}
	_ = group.Wait(context.Background()) // each call has its own deadline
	group.Close()
}

func (r *run) messageSize() int64 { return int64(len(r.workers[0].message())) }

// iteratePublish publishes a message.
func (r *run) iteratePublish(ctx context.Context, w *worker) {
	w.do(ctx, "publish", func(ctx context.Context) error {
		_, err := w.node.Publish(ctx, "bench/"+r.name, w.message())
		return err
	})
}

// iterateMailbox sends a message, receives one and acknowledges it. All
// workers share the box, so it may be that of another, but there is always
// one.
func (r *run) iterateMailbox(ctx context.Context, w *worker) {
	sent := w.do(ctx, "send", func(ctx context.Context) error {
		_, err := w.node.SendMail(ctx, r.name, w.message(), client.MailOptions{})
		return err
	})
	if !sent {
		return
	}
	var mail client.Mail
	received := w.do(ctx, "receive", func(ctx context.Context) (err error) {
		mail, err = w.node.ReceiveMail(ctx, r.name, client.ReceiveOptions{Wait: time.Second})
		return err
	})
	if received {
		w.do(ctx, "ack", func(ctx context.Context) error { return w.node.AckMail(ctx, r.name, mail.Receipt) })
	}
}

// cleanupTimeout bounds the cleanup, also after Ctrl-C.
const cleanupTimeout = 30 * time.Second

// cleanUp removes all objects and messages, and measures how long the objects
// took. An interruption does not stop it; a second one ends the process.
func (r *run) cleanUp(ctx context.Context, into *Report) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	begun := time.Now()
	r.runOnWorkers(func(w *worker) { w.removeAll(ctx) })
	into.add(r.workers, time.Since(begun), "rm")
	mail := r.emptyBox(ctx)
	var left []string
	for _, w := range r.workers {
		for _, address := range w.storedAddresses {
			left = append(left, address.String())
		}
	}
	switch {
	case len(left) > 0:
		return &fault.Error{Op: op, Kind: fault.UpstreamFailed, Detail: fmt.Sprintf("%d objects could not be removed", len(left)),
			Next: "Remove them: micronode rm " + strings.Join(left[:min(len(left), 8)], " ")}
	case mail > 0:
		return &fault.Error{Op: op, Kind: fault.UpstreamFailed, Detail: fmt.Sprintf("%d messages may be left in the box %s", mail, r.name),
			Next: "Receive them after their leases expire: micronode mbox recv " + r.name + " --ack"}
	}
	return nil
}

// emptyBox removes messages that failed iterations have left, and returns how
// many may still be there: one that was received and could not be acknowledged
// is hidden until its lease ends. If nothing was sent, it does nothing.
func (r *run) emptyBox(ctx context.Context) (left int) {
	tried := false
	for _, w := range r.workers {
		tried = tried || w.tallies["send"] != nil
		left += int(w.tally("send").latencies.count) - int(w.tally("ack").latencies.count)
	}
	node := r.workers[0].node
	for ; tried; left-- {
		mail, err := node.ReceiveMail(ctx, r.name, client.ReceiveOptions{})
		if err != nil || node.AckMail(ctx, r.name, mail.Receipt) != nil {
			break
		}
	}
	return left
}

// failure is the first error of a call. Refusals are errors only if no call
// succeeded.
func (r *run) failure(found *Report) error {
	for _, w := range r.workers {
		if w.firstError != nil {
			return w.firstError
		}
	}
	for _, one := range found.Measures {
		if one.Done == 0 {
			return &fault.Error{Op: op, Kind: fault.Busy, Detail: one.What + ": the node refused every call: " + formatCounts(one.Refused),
				Next: "Try again when the node is less busy, or use fewer --connections."}
		}
	}
	return nil
}

func (r *run) close() {
	for _, w := range r.workers {
		w.node.Close()
	}
}

// Objects.

func iteratePut(ctx context.Context, w *worker) {
	if len(w.storedAddresses) >= w.maxObjects && !w.remove(ctx, "make room") {
		return
	}
	content := w.content()
	var object client.Object
	put := w.do(ctx, "put", func(ctx context.Context) (err error) {
		object, err = w.node.Put(ctx, content, client.PutOptions{Size: int64(len(w.payload))})
		return err
	})
	switch {
	case put:
		w.storedAddresses = append(w.storedAddresses, object.Address)
	case mayHaveTakenEffect(w.lastError):
		w.storedAddresses = append(w.storedAddresses, b3.Of(w.payload)) // it may be stored anyway
	}
}

// mayHaveTakenEffect reports whether a call that failed may have taken effect.
func mayHaveTakenEffect(err error) bool {
	switch fault.KindOf(err) {
	case fault.Timeout, fault.BrokenPipe, fault.Transient, fault.UpstreamFailed, fault.IntegrityFail, fault.Internal:
		return true
	}
	return false
}

func iterateGet(ctx context.Context, w *worker) {
	if len(w.storedAddresses) == 0 {
		w.abortPhase = true // nothing was put, so nothing can be fetched
		return
	}
	w.gets++
	address := w.storedAddresses[w.gets%len(w.storedAddresses)]
	w.do(ctx, "get", func(ctx context.Context) error { return fetchAll(ctx, w.node, address) })
}

func iterateResolve(ctx context.Context, w *worker) {
	if len(w.storedAddresses) == 0 {
		w.abortPhase = true
		return
	}
	w.do(ctx, "resolve", func(ctx context.Context) error {
		_, err := w.node.Resolve(ctx, w.storedAddresses[0].String(), client.ResolveOptions{})
		return err
	})
}

// The bounds of the pause after a refusal. Within them it is the node's
// Retry-After.
const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 5 * time.Second
)

// sleepBackoff waits after a call that failed.
func sleepBackoff(ctx context.Context, err error) {
	_ = flow.Sleep(ctx, min(max(fault.RetryAfterOf(err), minBackoff), maxBackoff)) // the loop checks the context
}
