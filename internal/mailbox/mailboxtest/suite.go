// Package mailboxtest holds every engine of the mailbox to the same promises.
//
// A driver calls [Run] in a test of its own and says with a [Spec] how it is
// opened and what it does differently. Nothing here asserts how long something
// takes. In a bubble of testing/synctest, time is faked, and more can be said;
// elsewhere, what is to happen is waited for.
package mailboxtest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/mailbox"
)

// Spec says how an engine is opened, and what may be expected of it.
type Spec struct {
	// Open opens an empty engine with these limits, or as near to them as it
	// can. Its tasks run. It is closed when the test ends, also if the test has
	// closed it already.
	Open func(t *testing.T, limits mailbox.Limits) mailbox.Engine

	// Reopen closes an engine and opens what it kept; nil if it keeps nothing.
	Reopen func(t *testing.T, e mailbox.Engine) mailbox.Engine

	// Bubble runs each test in a bubble of testing/synctest.
	Bubble bool

	// Tick is the shortest visibility time-out that the engine keeps well; zero
	// for 40 ms. Tests wait for it to end, never for it not to have ended.
	Tick time.Duration

	// Strict says that the oldest message that can be had is always the next
	// one, also if it was given back or its lease has ended, and that Usage is
	// exact at once.
	Strict bool

	// Apart says that the engine is in another process. When that one ends, this
	// one goes on, so it is told NotReady and not Canceled; and a receiver whose
	// deadline is near may be told that there is no message.
	Apart bool
}

// Limits is roomy enough for most tests.
func Limits() mailbox.Limits {
	return mailbox.Limits{
		Bytes: 64 << 20, Boxes: 10_000, BoxMessages: 10_000, BoxBytes: 16 << 20, MaxMessage: 512 << 10,
		MaxDeliveries: 5, Visibility: 30 * time.Second, MaxVisibility: 12 * time.Hour,
		Keys: 100_000, KeyLife: 24 * time.Hour, Dead: 1000, DeadLife: 7 * 24 * time.Hour,
		Boards: 10_000, BoardNotes: 500, Waiting: 1024,
	}
}

// Run runs the suite.
func Run(t *testing.T, spec Spec) {
	if spec.Tick == 0 {
		spec.Tick = 40 * time.Millisecond
	}
	for _, one := range tests {
		if one.bubble && !spec.Bubble || one.survives && spec.Reopen == nil {
			continue
		}
		t.Run(one.name, func(t *testing.T) {
			if spec.Bubble {
				synctest.Test(t, func(t *testing.T) { one.run(bench{T: t, Spec: spec}) })
				return
			}
			one.run(bench{T: t, Spec: spec})
		})
	}
}

// tests is everything that an engine promises.
var tests = []struct {
	name     string
	bubble   bool // needs faked time
	survives bool // needs Reopen
	run      func(b bench)
}{
	{name: "SentReceivedAcknowledged", run: testRoundTrip},
	{name: "InTheOrderSent", run: testOrder},
	{name: "BoxesAreApart", run: testBoxes},
	{name: "AnEmptyBox", run: testEmpty},
	{name: "LeasedToOne", run: testLease},
	{name: "ALeaseEnds", run: testLapse},
	{name: "LeasedTooOften", run: testDeath},
	{name: "GivenBack", run: testNack},
	{name: "GivenBackForTheLastTime", run: testLastNack},
	{name: "Delayed", run: testDelay},
	{name: "ALeaseIsCutShort", run: testCutShort},
	{name: "ALeaseIsExtended", bubble: true, run: testExtend},
	{name: "Receipts", run: testReceipts},
	{name: "AKeyIsOneMessage", run: testKey},
	{name: "AKeyIsOneMessageAtATime", run: testKeyRace},
	{name: "AKeyIsForgottenAfterItsLife", bubble: true, run: testKeyLife},
	{name: "KeysAreBounded", bubble: true, run: testKeyRoom},
	{name: "WhoWaitsIsServed", run: testWait},
	{name: "WhoWaitsIsServedInOrder", bubble: true, run: testWaitOrder},
	{name: "WhoWaitsHearsOfALeaseThatEnds", run: testWaitLapse},
	{name: "WhoWaitsMayLeave", run: testLeave},
	{name: "WhoWaitsIsToldOfTheEnd", run: testCloseWaiting},
	{name: "NothingAfterClose", run: testClosed},
	{name: "ABoxIsBounded", run: testBoxRoom},
	{name: "AMessageIsBounded", run: testMessageRoom},
	{name: "BadNames", run: testNames},
	{name: "DeadLettersInPages", run: testDeadPages},
	{name: "DeadLettersAreBounded", run: testDeadRoom},
	{name: "Boards", run: testBoards},
	{name: "ABoardIsBounded", run: testBoardRoom},
	{name: "ANoteIsPinnedOnce", run: testPinOnce},
	{name: "ManyAtATime", run: testMany},
	{name: "Model", run: testModel},
	{name: "MessagesSurvive", survives: true, run: testSurviveMessages},
	{name: "LeasesSurvive", survives: true, run: testSurviveLeases},
	{name: "DeadLettersSurvive", survives: true, run: testSurviveDead},
	{name: "KeysSurvive", survives: true, run: testSurviveKeys},
	{name: "NotesSurvive", survives: true, run: testSurviveNotes},
}

// bench is one test with its spec.
type bench struct {
	*testing.T
	Spec
}

// long is a visibility time-out that does not end during a test.
const long = 10 * time.Minute

// patience is how long something is waited for that must come.
const patience = 20 * time.Second

func (b bench) open() *engine { return b.openWith(Limits()) }

func (b bench) openWith(limits mailbox.Limits) *engine {
	b.Helper()
	return &engine{bench: b, Engine: b.Open(b.T, limits), ctx: b.Context()}
}

func (b bench) reopen(e *engine) *engine {
	b.Helper()
	return &engine{bench: b, Engine: b.Reopen(b.T, e.Engine), ctx: b.Context()}
}

// eventually waits until something holds.
func (b bench) eventually(what string, holds func() bool) {
	b.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("it never came about that %s", what)
		}
	}
}

// engine is the engine under test, with what a test says often.
type engine struct {
	bench
	mailbox.Engine
	ctx context.Context
}

// send sends a message and returns its ID.
func (e *engine) send(m mailbox.Message) string {
	e.Helper()
	sent, err := e.Engine.Send(e.ctx, m)
	if err != nil || sent.ID == "" || sent.Repeated {
		e.Fatalf("Send(%q): %+v, %v", m.Box, sent, err)
	}
	return sent.ID
}

func (e *engine) sendText(box, body string) string {
	e.Helper()
	return e.send(mailbox.Message{Box: box, Body: []byte(body)})
}

// receive leases a message that must be there, or come soon.
func (e *engine) receive(box string, visibility time.Duration) mailbox.Delivery {
	e.Helper()
	got, err := e.Engine.Receive(e.ctx, box, visibility, patience)
	if err != nil || got.ID == "" || got.Receipt == "" || got.Deliveries < 1 {
		e.Fatalf("Receive(%q): %+v, %v", box, got, err)
	}
	return got
}

// none makes sure that no message of a box can be had.
func (e *engine) none(box string) {
	e.Helper()
	if got, err := e.Engine.Receive(e.ctx, box, long, 0); fault.KindOf(err) != fault.NotFound {
		e.Fatalf("Receive(%q) of a box with nothing to be had: %+v, %v", box, got, err)
	}
}

func (e *engine) ack(box string, d mailbox.Delivery) {
	e.Helper()
	if err := e.Engine.Ack(e.ctx, box, d.Receipt); err != nil {
		e.Fatalf("Ack(%q): %v", box, err)
	}
}

func (e *engine) nack(box string, d mailbox.Delivery, delay time.Duration, reason string) {
	e.Helper()
	if err := e.Engine.Nack(e.ctx, box, d.Receipt, delay, reason); err != nil {
		e.Fatalf("Nack(%q): %v", box, err)
	}
}

// dead lists all dead letters of a box.
func (e *engine) dead(box string) []mailbox.DeadLetter {
	e.Helper()
	list, err := e.Engine.Dead(e.ctx, box, "", 1000)
	if err != nil {
		e.Fatalf("Dead(%q): %v", box, err)
	}
	return list
}

func (e *engine) post(n mailbox.Note, boards ...string) {
	e.Helper()
	if err := e.Engine.Post(e.ctx, boards, n); err != nil {
		e.Fatalf("Post(%q): %v", boards, err)
	}
}

// board lists the IDs of the notes of a board.
func (e *engine) board(name string, limit int) (ids []string) {
	e.Helper()
	return e.boardAfter(name, "", limit)
}

// boardAfter lists those after one of them.
func (e *engine) boardAfter(name, after string, limit int) (ids []string) {
	e.Helper()
	notes, err := e.Engine.Board(e.ctx, name, after, limit)
	if err != nil {
		e.Fatalf("Board(%q): %v", name, err)
	}
	for _, n := range notes {
		ids = append(ids, n.ID)
	}
	return ids
}

// usage makes sure of what is counted, once it is.
func (e *engine) usage(what string, holds func(mailbox.Usage) bool) {
	e.Helper()
	if e.Strict {
		if u := e.Engine.Usage(); !holds(u) {
			e.Fatalf("Usage: %+v, want %s", u, what)
		}
		return
	}
	e.eventually("usage is "+what, func() bool { return holds(e.Engine.Usage()) })
}

// ended makes sure that an engine which is closed says so.
func (e *engine) ended(what string, err error) {
	e.Helper()
	if e.Apart && fault.KindOf(err) == fault.NotReady {
		return
	}
	e.refused(what, err, fault.Canceled)
}

// refused makes sure of the kind of an error.
func (e *engine) refused(what string, err error, want fault.Kind) {
	e.Helper()
	if fault.KindOf(err) != want {
		e.Fatalf("%s: %v (%s), want %s", what, err, fault.KindOf(err), want)
	}
	if err != nil && fault.NextOf(err) == "" {
		e.Errorf("%s: no next step", what)
	}
}

func (e *engine) same(what string, got, want []string) {
	e.Helper()
	if !slices.Equal(got, want) {
		e.Fatalf("%s: %q, want %q", what, got, want)
	}
}

func numbered(n int) string { return fmt.Sprintf("message %d", n) }
