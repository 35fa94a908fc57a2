package main

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

// bench is one measurement of a node.
type bench struct {
	// set at construction
	workers  []*benchWorker // one for each connection
	duration time.Duration  // of the whole bench; then of one phase
	count    int64          // maximum number of iterations of one phase
	name     string         // of the box and the topic; it is unique
}

// benchPhase is an operation to repeat for a while.
type benchPhase struct {
	calls      []string // what it measures
	iterate    func(context.Context, *benchWorker)
	skipReason string // why it cannot be measured; empty if it can
}

// measure runs all phases, fills in the report and cleans up. It returns the
// first error.
func (b *bench) measure(ctx context.Context, status client.Status, into *benchReport) error {
	phases := b.phases(status)
	active := 0
	for _, one := range phases {
		if one.skipReason == "" {
			active++
		}
	}
	b.duration /= time.Duration(active)
	for _, one := range phases {
		if one.skipReason != "" {
			into.NotMeasured = append(into.NotMeasured, benchSkipped{strings.Join(one.calls, ", "), one.skipReason})
			continue
		}
		took := b.runPhase(ctx, b.duration, one.iterate)
		into.add(b.workers, took, one.calls...)
	}
	if err := b.cleanUp(ctx, into); err != nil {
		return err
	}
	return b.failure(into)
}

// phases lists the phases of the bench.
func (b *bench) phases(status client.Status) []benchPhase {
	missingPart := func(there bool, part string) string {
		if there {
			return ""
		}
		return "the node has no " + part
	}
	return []benchPhase{
		{calls: []string{"put"}, iterate: iteratePut},
		{calls: []string{"get"}, iterate: iterateGet},
		{calls: []string{"resolve"}, iterate: iterateResolve, skipReason: missingPart(hasPart(status, "index"), "index")},
		{calls: []string{"publish"}, iterate: b.iteratePublish, skipReason: missingPart(hasPart(status, "overlay"), "overlay")},
		{calls: []string{"send", "receive", "ack"}, iterate: b.iterateMailbox, skipReason: missingPart(hasPart(status, "mailbox"), "mailbox")},
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
// has begun is finished, so that the bench knows of everything that is left on
// the node.
func (b *bench) runPhase(ctx context.Context, duration time.Duration, iterate func(context.Context, *benchWorker)) time.Duration {
	begun := time.Now()
	var turns atomic.Int64
	b.runOnWorkers(func(w *benchWorker) {
		w.abortPhase = false
		for ctx.Err() == nil && !w.abortPhase && time.Since(begun) < duration && turns.Add(1) <= b.count {
			iterate(ctx, w)
		}
	})
	return time.Since(begun)
}

// runOnWorkers calls do for all workers at the same time, and waits for all.
func (b *bench) runOnWorkers(do func(*benchWorker)) {
	const stage = "bench"
	supervisor, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: stage}}, DrainTimeout: time.Second})
	if err != nil {
		panic(err) // the options are constant
	}
	group, err := supervisor.NewGroup(supervise.GroupSpec{Service: "node", Kind: stage, Stage: stage, Max: len(b.workers)})
	if err != nil {
		panic(err)
	}
	for _, w := range b.workers {
		_ = group.Go(func(context.Context) error { do(w); return nil }) // the group has room for all
	}
	_ = group.Wait(context.Background()) // each call has its own deadline
	group.Close()
}

func (b *bench) messageSize() int64 { return int64(len(b.workers[0].message())) }

// iteratePublish publishes a message.
func (b *bench) iteratePublish(ctx context.Context, w *benchWorker) {
	w.do(ctx, "publish", func(ctx context.Context) error {
		_, err := w.node.Publish(ctx, "bench/"+b.name, w.message())
		return err
	})
}

// iterateMailbox sends a message, receives one and acknowledges it. All
// workers share the box, so it may be that of another, but there is always
// one.
func (b *bench) iterateMailbox(ctx context.Context, w *benchWorker) {
	sent := w.do(ctx, "send", func(ctx context.Context) error {
		_, err := w.node.SendMail(ctx, b.name, w.message(), client.MailOptions{})
		return err
	})
	if !sent {
		return
	}
	var mail client.Mail
	received := w.do(ctx, "receive", func(ctx context.Context) (err error) {
		mail, err = w.node.ReceiveMail(ctx, b.name, client.ReceiveOptions{Wait: time.Second})
		return err
	})
	if received {
		w.do(ctx, "ack", func(ctx context.Context) error { return w.node.AckMail(ctx, b.name, mail.Receipt) })
	}
}

// cleanupTimeout bounds the cleanup, also after Ctrl-C.
const cleanupTimeout = 30 * time.Second

// cleanUp removes all objects and messages, and measures how long the objects
// took. An interruption does not stop it; a second one ends the process.
func (b *bench) cleanUp(ctx context.Context, into *benchReport) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	begun := time.Now()
	b.runOnWorkers(func(w *benchWorker) { w.removeAll(ctx) })
	into.add(b.workers, time.Since(begun), "rm")
	mail := b.emptyBox(ctx)
	var left []string
	for _, w := range b.workers {
		for _, address := range w.storedAddresses {
			left = append(left, address.String())
		}
	}
	switch {
	case len(left) > 0:
		return &fault.Error{Op: "bench", Kind: fault.UpstreamFailed, Detail: fmt.Sprintf("%d objects could not be removed", len(left)),
			Next: "Remove them: micronode rm " + strings.Join(left[:min(len(left), 8)], " ")}
	case mail > 0:
		return &fault.Error{Op: "bench", Kind: fault.UpstreamFailed, Detail: fmt.Sprintf("%d messages may be left in the box %s", mail, b.name),
			Next: "Receive them after their leases expire: micronode mbox recv " + b.name + " --ack"}
	}
	return nil
}

// emptyBox removes messages that failed iterations have left, and returns how
// many may still be there: one that was received and could not be acknowledged
// is hidden until its lease ends. If nothing was sent, it does nothing.
func (b *bench) emptyBox(ctx context.Context) (left int) {
	tried := false
	for _, w := range b.workers {
		tried = tried || w.tallies["send"] != nil
		left += int(w.tally("send").latencies.count) - int(w.tally("ack").latencies.count)
	}
	node := b.workers[0].node
	for ; tried; left-- {
		mail, err := node.ReceiveMail(ctx, b.name, client.ReceiveOptions{})
		if err != nil || node.AckMail(ctx, b.name, mail.Receipt) != nil {
			break
		}
	}
	return left
}

// failure is the first error of a call. Refusals are errors only if no call
// succeeded.
func (b *bench) failure(found *benchReport) error {
	for _, w := range b.workers {
		if w.firstError != nil {
			return w.firstError
		}
	}
	for _, one := range found.Measures {
		if one.Done == 0 {
			return &fault.Error{Op: "bench", Kind: fault.Busy, Detail: one.What + ": the node refused every call: " + formatCounts(one.Refused),
				Next: "Try again when the node is less busy, or use fewer --connections."}
		}
	}
	return nil
}

func (b *bench) close() {
	for _, w := range b.workers {
		w.node.Close()
	}
}

// Objects.

func iteratePut(ctx context.Context, w *benchWorker) {
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

func iterateGet(ctx context.Context, w *benchWorker) {
	if len(w.storedAddresses) == 0 {
		w.abortPhase = true // nothing was put, so nothing can be fetched
		return
	}
	w.gets++
	address := w.storedAddresses[w.gets%len(w.storedAddresses)]
	w.do(ctx, "get", func(ctx context.Context) error { return fetchAll(ctx, w.node, address) })
}

func iterateResolve(ctx context.Context, w *benchWorker) {
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
