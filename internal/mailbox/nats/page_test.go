package nats

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"micronode/internal/mailbox"
	"micronode/internal/mailbox/mailboxtest"
	"micronode/internal/testkit"
)

// openWithNotes opens a mailbox and posts so many notes to the board "wall",
// with bursts of notes for other boards between them.
func openWithNotes(t *testing.T, f *fakeServer, notes, size int) *Mailbox {
	t.Helper()
	limits := mailboxtest.Limits()
	limits.BoardNotes = notes
	m := f.open(t, Spec{Limits: limits})
	for i := range notes {
		boards := []string{"wall"}
		for j := range 20 * max(0, i%50-48) {
			boards = append(boards, fmt.Sprint("other ", i, " ", j))
		}
		testkit.Must(t, m.Post(t.Context(), boards, noteNumbered(i, size)))
	}
	return m
}

func noteNumbered(i, size int) mailbox.Note {
	return mailbox.Note{ID: fmt.Sprint("note ", i), Body: bytes.Repeat([]byte{'x'}, size)}
}

// expectPage checks that notes are those with these numbers, downwards.
func expectPage(t *testing.T, what string, got []mailbox.Note, err error, from, n int) {
	t.Helper()
	ok := err == nil && len(got) == n
	for i := range got {
		ok = ok && got[i].ID == fmt.Sprint("note ", from-i)
	}
	if !ok {
		t.Fatalf("%s: %d notes, %v; want %d from number %d on", what, len(got), err, n, from)
	}
}

// TestAPageCostsAPage reads pages of a long board at nodes without state for
// it.
func TestAPageCostsAPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const notes, size, page = 2000, 1000, 50
		f := newFakeServer()
		limits := openWithNotes(t, f, notes, size).spec.Limits
		for _, depth := range []int{0, 1, 70, notes / 2, notes - page, notes - 3} {
			m := f.open(t, Spec{Limits: limits})
			_, err := m.Notes(t.Context(), "nothing", "", 1)
			testkit.Must(t, err)
			after := ""
			if depth > 0 {
				after = fmt.Sprint("note ", notes-depth)
			}
			f.mu.Lock()
			f.bytesSent, f.requests = 0, map[string]int{}
			f.mu.Unlock()
			got, err := m.Notes(t.Context(), "wall", after, page)
			expectPage(t, after, got, err, notes-1-depth, min(page, notes-depth))
			f.mu.Lock()
			if most := 2*page*size + 20*size; f.bytesSent > most {
				t.Errorf("after %d notes: the server sent %d bytes, more than %d", depth, f.bytesSent, most)
			}
			if asked := f.requests["$JS.API.DIRECT.GET"]; asked > 16 {
				t.Errorf("after %d notes: it was asked %d times", depth, asked)
			}
			f.mu.Unlock()
		}
		m := f.open(t, Spec{Limits: limits})
		got, err := m.Notes(t.Context(), "wall", "", notes)
		expectPage(t, "all", got, err, notes-1, notes)
	})
}

// TestPagesWhileOthersPost has notes come between the requests of a page.
func TestPagesWhileOthersPost(t *testing.T) {
	for _, more := range []int{1, 3, 30} {
		synctest.Test(t, func(t *testing.T) {
			const notes = 200
			f := newFakeServer()
			m := openWithNotes(t, f, notes, 10)
			m.spec.Limits.BoardNotes = 1 << 20 // none of them is evicted
			next := notes
			f.setIntercept(func(subject string) verdict {
				for range more * strings.Count(subject, "DIRECT.GET") {
					n := noteNumbered(next, 10)
					f.store(m.client.layout.noteSubject("wall", n.ID), map[string][]string{noteHeader: {encodeHeader(noteMetadata{ID: n.ID})}}, n.Body)
					next++
				}
				return verdict{}
			})
			newest, err := m.Notes(t.Context(), "wall", "", 5)
			testkit.Must(t, err)
			var number int
			_, err = fmt.Sscanf(newest[0].ID, "note %d", &number)
			testkit.Must(t, err)
			if number < notes-1 {
				t.Errorf("the newest note is %d", number)
			}
			expectPage(t, "the newest", newest, nil, number, 5)
			for _, from := range []int{notes - 1, 100, 20} {
				after := fmt.Sprint("note ", from)
				got, err := m.Notes(t.Context(), "wall", after, 20)
				expectPage(t, "after "+after, got, err, from-1, 20)
			}
		})
	}
}

// TestPageStart finds the start of a page wherever the notes are.
func TestPageStart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gaps := rapid.SliceOfN(rapid.OneOf(rapid.Uint64Range(1, 3), rapid.Uint64Range(1, 1<<40)), 1, 300).Draw(t, "gaps")
		seqs, seq := []uint64(nil), uint64(0)
		for _, gap := range gaps {
			seq += gap
			seqs = append(seqs, seq)
		}
		looks := 0
		look := func(from uint64) (noteRange, error) {
			if looks++; looks > 100 {
				t.Fatalf("it has asked %d times", looks)
			}
			i, _ := slices.BinarySearch(seqs, from)
			if i == len(seqs) {
				return noteRange{}, nil
			}
			return noteRange{from: seqs[i], count: len(seqs) - i}, nil
		}
		oldest, _ := look(1)
		end := noteRange{from: seq + 1}
		if i := rapid.IntRange(0, len(seqs)).Draw(t, "end"); i < len(seqs) {
			end, _ = look(seqs[i])
		}
		want := rapid.IntRange(1, 60).Draw(t, "want")
		looks = 0
		start, err := pageStart(oldest, end, want, look)
		if is, _ := look(start.from); err != nil || is != start {
			t.Fatalf("%+v, but there is %+v; %v", start, is, err)
		}
		before, all := start.count-end.count, oldest.count-end.count
		if before < min(want, all) || before > want+want/2+4 {
			t.Fatalf("%d notes of %d before the end, for a page of %d", before, all, want)
		}
	})
}

// TestBoardsAreTrimmed posts more notes than a board has, from nodes that do
// not know of each other.
func TestBoardsAreTrimmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := mailboxtest.Limits()
		limits.BoardNotes = 40
		f := newFakeServer()
		nodes := []*Mailbox{f.open(t, Spec{Limits: limits}), f.open(t, Spec{Limits: limits})}
		for i := range 200 {
			testkit.Must(t, nodes[i%2].Post(t.Context(), []string{"wall"}, noteNumbered(i, 1)))
		}
		is, err := nodes[0].rangeFrom(t.Context(), "test", nodes[0].client.layout.boardSubjects("wall"), 1)
		if testkit.Must(t, err); is.count < 40 || is.count > 40+2*40/8 {
			t.Errorf("%d notes are kept", is.count)
		}
		for _, limit := range []int{7, 100} {
			got, err := nodes[1].Notes(t.Context(), "wall", "", limit)
			expectPage(t, "the newest", got, err, 199, min(limit, 40))
		}
		got, err := nodes[1].Notes(t.Context(), "wall", "note 163", 100)
		expectPage(t, "the oldest", got, err, 162, 3)
		for _, gone := range []string{"note 160", "note 159", "note 3"} {
			got, err := nodes[1].Notes(t.Context(), "wall", gone, 10)
			expectPage(t, "after one that is gone, or the last", got, err, 0, 0)
		}
	})
}

// TestANoteOfManyNodes has nodes post the same notes at the same time.
func TestANoteOfManyNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		nodes := []*Mailbox{f.open(t, Spec{}), f.open(t, Spec{}), f.open(t, Spec{})}
		var posting sync.WaitGroup
		for _, m := range nodes {
			posting.Go(func() {
				for i := range 30 {
					if err := m.Post(t.Context(), []string{"wall", "door"}, noteNumbered(i, 1)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		posting.Wait()
		for _, board := range []string{"wall", "door"} {
			got, err := nodes[0].Notes(t.Context(), board, "", 100)
			expectPage(t, board, got, err, 29, 30)
		}
		time.Sleep(time.Minute)
		if u := nodes[1].Usage(); u.Boards != 2 || u.Notes != 60 {
			t.Errorf("%+v", u)
		}
	})
}

// TestANoteThatIsBeingWritten has JetStream say that another node is writing
// the same note. Whether it will be stored is not known yet.
func TestANoteThatIsBeingWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		m := f.open(t, Spec{})
		f.setIntercept(firstN(1, writes, verdict{code: 10164}))
		testkit.Must(t, m.Post(t.Context(), []string{"wall"}, noteNumbered(0, 1)))
		got, err := m.Notes(t.Context(), "wall", "", 10)
		expectPage(t, "the wall", got, err, 0, 1)
	})
}

// TestBoardsAreCountedWhileNotesGo has JetStream evict the oldest messages, and
// with them the marks of boards.
func TestBoardsAreCountedWhileNotesGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		m := f.open(t, Spec{})
		testkit.Must(t, m.Post(t.Context(), []string{"quiet"}, noteNumbered(0, 1)))
		for i := range 200 {
			testkit.Must(t, m.Post(t.Context(), []string{"wall"}, noteNumbered(i, 1)))
			time.Sleep(time.Second)
			f.mu.Lock()
			s := f.streams["micronode-notes"]
			s.messages = s.messages[max(0, len(s.messages)-20):]
			f.mu.Unlock()
		}
		time.Sleep(time.Minute)
		if u := m.Usage(); u.Boards != 1 || u.Notes != 19 {
			t.Errorf("%+v", u)
		}
	})
}
