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
	workers []*benchWorker // one for each connection
	share   time.Duration  // all the time there is; then that of one phase
	count   int64          // turns of one phase at most
	name    string         // of the box and the topic; nobody else has it
}

// benchPhase is something to do again and again for a while.
type benchPhase struct {
	calls []string // what it measures
	turn  func(context.Context, *benchWorker)
	why   string // it cannot be measured; empty if it can
}

// measure goes through all phases, fills in the report and cleans up. The error
// is the first thing that failed.
func (b *bench) measure(ctx context.Context, status client.Status, into *benchReport) error {
	phases := b.phases(status)
	going := 0
	for _, one := range phases {
		if one.why == "" {
			going++
		}
	}
	b.share /= time.Duration(going)
	for _, one := range phases {
		if one.why != "" {
			into.NotMeasured = append(into.NotMeasured, benchAbsence{strings.Join(one.calls, ", "), one.why})
			continue
		}
		took := b.during(ctx, b.share, one.turn)
		into.add(b.workers, took, one.calls...)
	}
	if err := b.cleanUp(ctx, into); err != nil {
		return err
	}
	return b.failure(into)
}

// phases are all that there is to measure.
func (b *bench) phases(status client.Status) []benchPhase {
	why := func(there bool, part string) string {
		if there {
			return ""
		}
		return "the node has no " + part
	}
	return []benchPhase{
		{calls: []string{"put"}, turn: putTurn},
		{calls: []string{"get"}, turn: getTurn},
		{calls: []string{"resolve"}, turn: resolveTurn, why: why(hasPart(status, "index"), "index")},
		{calls: []string{"publish"}, turn: b.publishTurn, why: why(hasPart(status, "overlay"), "overlay")},
		{calls: []string{"send", "receive", "ack"}, turn: b.mailTurn, why: why(hasPart(status, "mailbox"), "mailbox")},
	}
}

// hasPart tells whether a part of the node is there, in this process or in
// another one. A process that runs some parts has tasks that look after the
// others, so where there is a list of parts it alone counts.
func hasPart(status client.Status, part string) bool {
	if len(status.Parts) > 0 {
		return slices.ContainsFunc(status.Parts, func(p client.Part) bool { return p.Name == part && p.Up })
	}
	return slices.ContainsFunc(status.Services, func(s client.Service) bool { return strings.HasPrefix(s.Name, part+" ") })
}

// during makes all workers take turns until the time is up, there were enough of
// them, somebody interrupts, or there is no point in going on. A turn that was begun is finished: so nothing
// is left on the node that nobody knows of.
func (b *bench) during(ctx context.Context, lasting time.Duration, turn func(context.Context, *benchWorker)) time.Duration {
	begun := time.Now()
	var turns atomic.Int64
	b.together(func(w *benchWorker) {
		w.hopeless = false
		for ctx.Err() == nil && !w.hopeless && time.Since(begun) < lasting && turns.Add(1) <= b.count {
			turn(ctx, w)
		}
	})
	return time.Since(begun)
}

// together runs something for each worker at the same time, and waits for all.
func (b *bench) together(do func(*benchWorker)) {
	const stage = "bench"
	supervisor, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: stage}}, Total: time.Second})
	if err != nil {
		panic(err) // the options are constant
	}
	group, err := supervisor.NewGroup(supervise.GroupSpec{Service: "node", Kind: stage, Stage: stage, Max: len(b.workers)})
	if err != nil {
		panic(err)
	}
	for _, w := range b.workers {
		_ = group.Go(func(context.Context) error { do(w); return nil }) // there is room for all
	}
	_ = group.Wait(context.Background()) // each call has its own deadline
	group.Close()
}

func (b *bench) messageSize() int64 { return int64(len(b.workers[0].message())) }

// publishTurn publishes a message.
func (b *bench) publishTurn(ctx context.Context, w *benchWorker) {
	w.do(ctx, "publish", func(ctx context.Context) error {
		_, err := w.node.Publish(ctx, "bench/"+b.name, w.message())
		return err
	})
}

// mailTurn sends a message, receives one and acknowledges it. All workers share
// the box, so it may be that of another, but there is always one.
func (b *bench) mailTurn(ctx context.Context, w *benchWorker) {
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

// cleanTime is how long cleaning up may take, also after Ctrl-C.
const cleanTime = 30 * time.Second

// cleanUp removes all objects and messages, and measures how long the objects
// took. An interruption does not stop it: a second one ends the process.
func (b *bench) cleanUp(ctx context.Context, into *benchReport) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
	defer cancel()
	begun := time.Now()
	b.together(func(w *benchWorker) { w.removeAll(ctx) })
	into.add(b.workers, time.Since(begun), "rm")
	mail := b.emptyBox(ctx)
	var left []string
	for _, w := range b.workers {
		for _, address := range w.held {
			left = append(left, address.String())
		}
	}
	switch {
	case len(left) > 0:
		return &fault.Error{Op: "bench", Kind: fault.UpstreamFailed, Detail: fmt.Sprintf("%d objects could not be removed", len(left)),
			Next: "Remove them: micronode rm " + strings.Join(left[:min(len(left), 8)], " ")}
	case mail > 0:
		return &fault.Error{Op: "bench", Kind: fault.UpstreamFailed, Detail: fmt.Sprintf("%d messages may be left in the box %s", mail, b.name),
			Next: "Take them out when their leases are over: micronode mbox recv " + b.name + " --ack"}
	}
	return nil
}

// emptyBox takes out what failed turns have left, and says how many messages may
// be there all the same: one that was received and could not be acknowledged is
// hidden until its lease is over. Where nothing was sent there is nothing to look
// for.
func (b *bench) emptyBox(ctx context.Context) (left int) {
	tried := false
	for _, w := range b.workers {
		tried = tried || w.tallies["send"] != nil
		left += int(w.tally("send").times.n) - int(w.tally("ack").times.n)
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

// failure is the first error of a call. A node that refused now and then has not
// failed; one that did nothing else has.
func (b *bench) failure(found *benchReport) error {
	for _, w := range b.workers {
		if w.first != nil {
			return w.first
		}
	}
	for _, one := range found.Measures {
		if one.Done == 0 {
			return &fault.Error{Op: "bench", Kind: fault.Busy, Detail: one.What + ": the node refused every call: " + countsOf(one.Refused),
				Next: "Try again when the node has less to do, or with fewer --connections."}
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

func putTurn(ctx context.Context, w *benchWorker) {
	if len(w.held) >= w.room && !w.remove(ctx, "make room") {
		return
	}
	content := w.content()
	var object client.Object
	put := w.do(ctx, "put", func(ctx context.Context) (err error) {
		object, err = w.node.Put(ctx, content, client.PutOptions{Size: int64(len(w.bytes))})
		return err
	})
	switch {
	case put:
		w.held = append(w.held, object.Address)
	case unclear(w.last):
		w.held = append(w.held, b3.Of(w.bytes)) // it may be there all the same
	}
}

// unclear tells whether a call that failed may have had its effect.
func unclear(err error) bool {
	switch fault.KindOf(err) {
	case fault.Timeout, fault.BrokenPipe, fault.Transient, fault.UpstreamFailed, fault.IntegrityFail, fault.Internal:
		return true
	}
	return false
}

func getTurn(ctx context.Context, w *benchWorker) {
	if len(w.held) == 0 {
		w.hopeless = true // what could not be put cannot be fetched
		return
	}
	w.asked++
	address := w.held[w.asked%len(w.held)]
	w.do(ctx, "get", func(ctx context.Context) error { return fetchAll(ctx, w.node, address) })
}

func resolveTurn(ctx context.Context, w *benchWorker) {
	if len(w.held) == 0 {
		w.hopeless = true
		return
	}
	w.do(ctx, "resolve", func(ctx context.Context) error {
		_, err := w.node.Resolve(ctx, w.held[0].String(), client.ResolveOptions{})
		return err
	})
}

// How long a worker leaves a node alone that refused: as long as it asks for,
// but within these bounds.
const (
	shortestBackOff = 50 * time.Millisecond
	longestBackOff  = 5 * time.Second
)

// pause waits after a call that failed.
func pause(ctx context.Context, err error) {
	_ = flow.Sleep(ctx, min(max(fault.RetryAfterOf(err), shortestBackOff), longestBackOff)) // whoever interrupts is seen by the loop
}
