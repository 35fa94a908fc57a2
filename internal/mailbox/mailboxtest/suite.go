// Package mailboxtest holds every engine of the mailbox to the same promises.
//
// A driver calls [Run] in a test of its own and says with a [Spec] how it is
// opened and what it does differently. Nothing here asserts how long something
// takes. In a bubble of testing/synctest, time is faked, and more can be
// checked; elsewhere, tests wait for what must happen.
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

	// Reopen closes an engine and opens it again; nil if it keeps nothing.
	Reopen func(t *testing.T, e mailbox.Engine) mailbox.Engine

	// Bubble runs each test in a bubble of testing/synctest.
	Bubble bool

	// MinVisibility is the shortest visibility time-out that the engine keeps
	// well; zero for 40 ms. Tests wait for it to end, and never rely on it not
	// to have ended.
	MinVisibility time.Duration

	// Strict says that the oldest message that can be leased is always the next
	// one, also if it was returned or its lease has ended, and that Usage is
	// exact at once.
	Strict bool

	// Remote says that the engine is in another process. When that process
	// ends, this one continues, so calls return NotReady and not Canceled; and
	// a receiver whose deadline is near may get NotFound.
	Remote bool
}

// Limits is roomy enough for most tests.
func Limits() mailbox.Limits {
	return mailbox.Limits{
		Bytes: 64 << 20, Boxes: 10_000, BoxMessages: 10_000, BoxBytes: 16 << 20, MaxMessage: 512 << 10,
		MaxDeliveries: 5, Visibility: 30 * time.Second, MaxVisibility: 12 * time.Hour,
		Keys: 100_000, KeyLife: 24 * time.Hour, DeadLetters: 1000, DeadLife: 7 * 24 * time.Hour,
		Boards: 10_000, BoardNotes: 500, Receivers: 1024,
	}
}

// Run runs the suite.
func Run(t *testing.T, spec Spec) {
	if spec.MinVisibility == 0 {
		spec.MinVisibility = 40 * time.Millisecond
	}
	for _, one := range tests {
		if one.bubble && !spec.Bubble || one.survives && spec.Reopen == nil {
			continue
		}
		t.Run(one.name, func(t *testing.T) {
			if spec.Bubble {
				synctest.Test(t, func(t *testing.T) { one.run(testEnv{T: t, Spec: spec}) })
				return
			}
			one.run(testEnv{T: t, Spec: spec})
		})
	}
}

// tests is everything that an engine promises.
var tests = []struct {
	name     string
	bubble   bool // needs faked time
	survives bool // needs Reopen
	run      func(b testEnv)
}{
	{name: "SentReceivedAcknowledged", run: testRoundTrip},
	{name: "InTheOrderSent", run: testOrder},
	{name: "BoxesAreApart", run: testBoxes},
	{name: "AnEmptyBox", run: testEmpty},
	{name: "LeasedToOne", run: testLease},
	{name: "ALeaseEnds", run: testLeaseExpiry},
	{name: "LeasedTooOften", run: testDeadLetter},
	{name: "GivenBack", run: testNack},
	{name: "GivenBackForTheLastTime", run: testLastNack},
	{name: "Delayed", run: testDelay},
	{name: "ALeaseIsCutShort", run: testCutShort},
	{name: "ALeaseIsExtended", bubble: true, run: testExtend},
	{name: "Receipts", run: testReceipts},
	{name: "AKeyIsOneMessage", run: testKey},
	{name: "AKeyIsOneMessageAtATime", run: testKeyRace},
	{name: "AKeyIsForgottenAfterItsLife", bubble: true, run: testKeyLife},
	{name: "AKeyBelongsToItsSenderAndBox", run: testKeyOwners},
	{name: "KeysAreShared", bubble: true, run: testKeyShares},
	{name: "WhoWaitsIsServed", run: testWait},
	{name: "WhoWaitsIsServedInOrder", bubble: true, run: testWaitOrder},
	{name: "WhoWaitsHearsOfALeaseThatEnds", run: testWaitLeaseExpiry},
	{name: "WhoWaitsMayLeave", run: testLeave},
	{name: "WhoWaitsIsToldOfTheEnd", run: testCloseWaiting},
	{name: "NothingAfterClose", run: testClosed},
	{name: "ABoxIsBounded", run: testBoxRoom},
	{name: "AMessageIsBounded", run: testMessageRoom},
	{name: "BadNames", run: testNames},
	{name: "DeadLettersInPages", run: testDeadPages},
	{name: "DeadLettersAreBounded", run: testDeadRoom},
	{name: "DeadLettersAreSentAgain", run: testResend},
	{name: "DeadLettersAreSentAgainIfThereIsRoom", run: testResendRoom},
	{name: "DeadLettersAreDroppedByHand", run: testDrop},
	{name: "Boards", run: testBoards},
	{name: "ABoardIsBounded", run: testBoardRoom},
	{name: "ANoteIsPinnedOnce", run: testPostOnce},
	{name: "ManyAtATime", run: testMany},
	{name: "Model", run: testModel},
	{name: "MessagesSurvive", survives: true, run: testSurviveMessages},
	{name: "LeasesSurvive", survives: true, run: testSurviveLeases},
	{name: "DeadLettersSurvive", survives: true, run: testSurviveDead},
	{name: "DeadLettersThatWereSentAgainSurvive", survives: true, run: testSurviveResent},
	{name: "KeysSurvive", survives: true, run: testSurviveKeys},
	{name: "NotesSurvive", survives: true, run: testSurviveNotes},
}

// testEnv is one test with its spec.
type testEnv struct {
	*testing.T
	Spec
}

// longVisibility is a visibility time-out that does not end during a test.
const longVisibility = 10 * time.Minute

// waitTimeout is how long a test waits for what must come.
const waitTimeout = 20 * time.Second

func (t testEnv) open() *engine { return t.openWith(Limits()) }

func (t testEnv) openWith(limits mailbox.Limits) *engine {
	t.Helper()
	return &engine{testEnv: t, Engine: t.Open(t.T, limits), ctx: t.Context()}
}

func (t testEnv) reopen(e *engine) *engine {
	t.Helper()
	return &engine{testEnv: t, Engine: t.Reopen(t.T, e.Engine), ctx: t.Context()}
}

// eventually waits until a condition holds.
func (t testEnv) eventually(what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(waitTimeout); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came about that %s", what)
		}
	}
}

// engine is the engine under test, with helpers.
type engine struct {
	testEnv
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
	got, err := e.Engine.Receive(e.ctx, box, visibility, waitTimeout)
	if err != nil || got.ID == "" || got.Receipt == "" || got.Deliveries < 1 {
		e.Fatalf("Receive(%q): %+v, %v", box, got, err)
	}
	return got
}

// expectEmpty checks that a box has no message that can be leased.
func (e *engine) expectEmpty(box string) {
	e.Helper()
	if got, err := e.Engine.Receive(e.ctx, box, longVisibility, 0); fault.KindOf(err) != fault.NotFound {
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

// noteIDs lists the IDs of the notes of a board.
func (e *engine) noteIDs(name string, limit int) (ids []string) {
	e.Helper()
	return e.noteIDsAfter(name, "", limit)
}

// noteIDsAfter lists those after one of them.
func (e *engine) noteIDsAfter(name, after string, limit int) (ids []string) {
	e.Helper()
	notes, err := e.Engine.Notes(e.ctx, name, after, limit)
	if err != nil {
		e.Fatalf("Board(%q): %v", name, err)
	}
	for _, n := range notes {
		ids = append(ids, n.ID)
	}
	return ids
}

// expectUsage checks Usage, and waits for it if the engine is not Strict.
func (e *engine) expectUsage(what string, holds func(mailbox.Usage) bool) {
	e.Helper()
	if e.Strict {
		if u := e.Engine.Usage(); !holds(u) {
			e.Fatalf("Usage: %+v, want %s", u, what)
		}
		return
	}
	e.eventually("usage is "+what, func() bool { return holds(e.Engine.Usage()) })
}

// expectClosed checks the error of a closed engine.
func (e *engine) expectClosed(what string, err error) {
	e.Helper()
	if e.Remote && fault.KindOf(err) == fault.NotReady {
		return
	}
	e.expectKind(what, err, fault.Canceled)
}

// expectKind checks the kind of an error.
func (e *engine) expectKind(what string, err error, want fault.Kind) {
	e.Helper()
	if fault.KindOf(err) != want {
		e.Fatalf("%s: %v (%s), want %s", what, err, fault.KindOf(err), want)
	}
	if err != nil && fault.NextOf(err) == "" {
		e.Errorf("%s: no next step", what)
	}
}

func (e *engine) expectEqual(what string, got, want []string) {
	e.Helper()
	if !slices.Equal(got, want) {
		e.Fatalf("%s: %q, want %q", what, got, want)
	}
}

func numbered(n int) string { return fmt.Sprintf("message %d", n) }
