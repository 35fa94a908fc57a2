package mailbox_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/mailbox"
	"micronode/internal/mailbox/mailboxtest"
	"micronode/internal/testkit"
)

func newRAM(limits mailbox.Limits) *mailbox.RAM {
	return mailbox.NewRAM(flow.NewInventory(), mailbox.RAMSpec{Limits: limits})
}

// Everything has a bound, and what exceeds it is refused, or makes room.
func TestEverythingIsBounded(t *testing.T) {
	ctx := t.Context()
	send := func(e mailbox.Engine, box string, size int) error {
		_, err := e.Send(ctx, mailbox.Message{Box: box, Body: make([]byte, size)})
		return err
	}
	limits := mailboxtest.Limits()
	limits.Boxes = 2
	e := newRAM(limits)
	testkit.Must(t, send(e, "a", 1))
	testkit.Must(t, send(e, "b", 1))
	testkit.WantKind(t, send(e, "c", 1), fault.Busy, "a box too many")
	testkit.Must(t, send(e, "b", 1))
	got, err := e.Receive(ctx, "a", 0, 0)
	testkit.Must(t, err)
	testkit.Must(t, e.Ack(ctx, "a", got.Receipt))
	testkit.Must(t, send(e, "c", 1))

	limits = mailboxtest.Limits()
	limits.BoxBytes = 5000
	e = newRAM(limits)
	testkit.WantKind(t, send(e, "a", 5000), fault.Busy, "more than a box holds")
	testkit.Must(t, send(e, "a", 3000))
	testkit.WantKind(t, send(e, "a", 3000), fault.Busy, "more than is left in a box")
	testkit.Must(t, send(e, "b", 3000))

	limits = mailboxtest.Limits()
	limits.Bytes = 10_000
	e = newRAM(limits)
	testkit.Must(t, send(e, "a", 4000))
	testkit.Must(t, send(e, "b", 4000))
	testkit.WantKind(t, send(e, "c", 4000), fault.Busy, "more than the mailbox holds")
	testkit.WantKind(t, e.Post(ctx, []string{"wall"}, mailbox.Note{ID: "x", Body: make([]byte, 6000)}), fault.Busy, "a note that is larger than all notes")

	limits = mailboxtest.Limits()
	limits.Boards = 2
	e = newRAM(limits)
	testkit.Must(t, e.Post(ctx, []string{"a", "b"}, mailbox.Note{ID: "1"}))
	testkit.WantKind(t, e.Post(ctx, []string{"a", "c"}, mailbox.Note{ID: "2"}), fault.Busy, "a board too many")
	testkit.Must(t, e.Post(ctx, []string{"a", "b"}, mailbox.Note{ID: "2"}))
	for name, err := range map[string]error{
		"too many boards":         e.Post(ctx, make([]string, 10_001), mailbox.Note{ID: "3"}),
		"an ID that is too long":  e.Post(ctx, []string{"a"}, mailbox.Note{ID: strings.Repeat("x", 256)}),
		"a note that is too long": e.Post(ctx, []string{"a"}, mailbox.Note{ID: "3", Body: make([]byte, 65<<10)}),
	} {
		if kind := fault.KindOf(err); kind != fault.Malformed && kind != fault.BodyTooLarge {
			t.Errorf("%s: %v", name, err)
		}
	}
	boards := make([]string, 10_001)
	for i := range boards {
		boards[i] = "x"
	}
	if err := e.Post(ctx, boards, mailbox.Note{ID: "3"}); fault.KindOf(err) != fault.Malformed {
		t.Errorf("too many boards: %v", err)
	}
}

// Notes take half of the room at most; the oldest of all is evicted first.
func TestNotesNeverStandInTheWay(t *testing.T) {
	limits := mailboxtest.Limits()
	limits.Bytes = 100_000
	e := newRAM(limits)
	for i := range 300 {
		testkit.Must(t, e.Post(t.Context(), []string{"all", fmt.Sprint("own ", i)}, mailbox.Note{ID: fmt.Sprint(i), Body: make([]byte, 1000)}))
	}
	u := e.Usage()
	if u.Bytes > 50_000 || u.Notes < 50 || u.Boards != u.Notes/2+1 {
		t.Errorf("usage %+v", u)
	}
	notes, err := e.Notes(t.Context(), "all", "", 500)
	testkit.Must(t, err)
	if int64(len(notes)) != u.Notes/2 || notes[0].ID != "299" {
		t.Errorf("%d notes, the newest is %s", len(notes), notes[0].ID)
	}
	if gone, err := e.Notes(t.Context(), "own 0", "", 1); err != nil || len(gone) > 0 {
		t.Errorf("the oldest: %v, %v", gone, err)
	}
	_, err = e.Send(t.Context(), mailbox.Message{Box: "jobs", Body: make([]byte, 45_000)})
	testkit.Must(t, err)
}

// What a new note takes is what old ones lose, however many boards the oldest
// note is on: it leaves them one by one, those that it came to first.
func TestAWidePostLeavesBoardByBoard(t *testing.T) {
	limits := mailboxtest.Limits()
	limits.Bytes, limits.Boards = 100_000, 1000
	e := newRAM(limits)
	boards := make([]string, 700)
	for i := range boards {
		boards[i] = fmt.Sprint("fan ", i)
	}
	testkit.Must(t, e.Post(t.Context(), boards, mailbox.Note{ID: "wide"}))
	before, most := e.Usage().Notes, int64(0)
	for i := range 60 {
		testkit.Must(t, e.Post(t.Context(), []string{"one"}, mailbox.Note{ID: fmt.Sprint(i)}))
		now := e.Usage().Notes
		most, before = max(most, before-now), now
	}
	if most > 10 {
		t.Errorf("a note on one board took %d others from theirs", most)
	}
	if u := e.Usage(); u.Bytes > limits.Bytes/2 || u.Bytes < limits.Bytes/3 {
		t.Errorf("usage %+v", u)
	}
	first, err := e.Notes(t.Context(), boards[0], "", 1)
	testkit.Must(t, err)
	last, err := e.Notes(t.Context(), boards[699], "", 1)
	testkit.Must(t, err)
	if len(first) != 0 || len(last) != 1 {
		t.Errorf("the first board has %d notes, the last %d", len(first), len(last))
	}
}

// Others have turns while a note is posted to thousands of boards.
func TestAWidePostIsReadBetween(t *testing.T) {
	limits := mailboxtest.Limits()
	limits.Boards = 20_000
	e := newRAM(limits)
	boards := make([]string, 10_000)
	for i := range boards {
		boards[i] = fmt.Sprint("fan ", i)
	}
	posted := make(chan error, 1)
	has := func(board string) bool {
		notes, err := e.Notes(t.Context(), board, "", 1)
		testkit.Must(t, err)
		return len(notes) > 0
	}
	go func() { posted <- e.Post(t.Context(), boards, mailbox.Note{ID: "wide"}) }()
	for !has(boards[0]) {
		runtime.Gosched()
	}
	if has(boards[9_999]) {
		t.Error("nobody could read before the note was on all boards")
	}
	testkit.Must(t, <-posted)
	if !has(boards[9_999]) {
		t.Error("the note is not on the last board")
	}
}

// A note that is posted to another board with the same ID and another body is
// another note there.
func TestNotesOfOneID(t *testing.T) {
	limits := mailboxtest.Limits()
	limits.BoardNotes = 2
	e := newRAM(limits)
	for i := range 200 { // so that order is compacted
		testkit.Must(t, e.Post(t.Context(), []string{"wall"}, mailbox.Note{ID: fmt.Sprint(i % 3), Body: []byte(fmt.Sprint(i))}))
	}
	testkit.Must(t, e.Post(t.Context(), []string{"door"}, mailbox.Note{ID: "1", Body: []byte("other")}))
	for name, want := range map[string]string{"door": "other"} {
		notes, err := e.Notes(t.Context(), name, "", 1)
		testkit.Must(t, err)
		if string(notes[0].Body) != want {
			t.Errorf("on the %s: %q", name, notes[0].Body)
		}
	}
	if u := e.Usage(); u.Notes != 3 {
		t.Errorf("usage %+v", u)
	}
	testkit.Must(t, e.Close())
}

func TestDeadLettersGrowOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := runTasks(t, newRAM(mailboxtest.Limits()))
		_, err := e.Send(t.Context(), mailbox.Message{Box: "jobs", MaxDeliveries: 1})
		testkit.Must(t, err)
		_, err = e.Receive(t.Context(), "jobs", time.Second, 0)
		testkit.Must(t, err)
		time.Sleep(7 * 24 * time.Hour)
		if u := e.Usage(); u.Dead != 1 {
			t.Errorf("after a week: %+v", u)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if u := e.Usage(); u.Dead != 0 || u.Dropped != 1 || u.Boxes != 0 || u.Bytes != 0 {
			t.Errorf("a little later: %+v", u)
		}
	})
}

func TestAReasonIsCut(t *testing.T) {
	for text, want := range map[string]int{"short": 5, strings.Repeat("x", 2000): 1024, strings.Repeat("ä", 1000): 1024, "x" + strings.Repeat("ä", 1000): 1023, "a\xffb": 5} {
		if got := mailbox.TruncateReason(text); len(got) != want || !utf8.ValidString(got) {
			t.Errorf("%.10q: %d bytes, want %d", text, len(got), want)
		}
	}
}

// A waiter that is served in the moment in which its wait ends has the message,
// and it is not lost.
func TestNothingIsLostWhenWhoWaitsLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := runTasks(t, newRAM(mailboxtest.Limits()))
		for range 50 {
			got := make(chan error)
			go func() { _, err := e.Receive(t.Context(), "jobs", time.Hour, time.Second); got <- err }()
			go func() {
				time.Sleep(time.Second)
				_, err := e.Send(t.Context(), mailbox.Message{Box: "jobs"})
				testkit.Must(t, err)
			}()
			time.Sleep(2 * time.Second)
			served := <-got == nil
			if u := e.Usage(); (u.Leased == 1) != served || u.Messages != 1 {
				t.Fatalf("served: %t; usage %+v", served, u)
			}
			if !served {
				_, err := e.Receive(t.Context(), "jobs", time.Hour, 0)
				testkit.Must(t, err)
			}
			time.Sleep(time.Hour)
			last, err := e.Receive(t.Context(), "jobs", time.Hour, 0)
			testkit.Must(t, err)
			testkit.Must(t, e.Ack(t.Context(), "jobs", last.Receipt))
		}
	})
}
