//go:build gates

package gates

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/png"
	"maps"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"micronode/client"
	"micronode/fault"
)

// everything turns all facets on.
var everything = []string{
	"MICRO_FACETS__FEED__ENABLED=true", "MICRO_FACETS__GRAPH__ENABLED=true", "MICRO_FACETS__SEARCH__ENABLED=true", "MICRO_FACETS__MEDIA__ENABLED=true",
}

// ledger is what the node has acknowledged, and how it has refused.
type ledger struct {
	mu       sync.Mutex
	sent     map[string]bool // messages that were taken in
	settled  map[string]bool // those that somebody set out to acknowledge: maybe before the sender knew that it was sent
	did      map[string]int
	refusals map[fault.Kind]int
	wrong    []string
}

func newLedger() *ledger {
	return &ledger{sent: map[string]bool{}, settled: map[string]bool{}, did: map[string]int{}, refusals: map[fault.Kind]int{}}
}

// note counts one call. What a node under load may say is that it is loaded, or
// that it goes away; everything else is wrong.
func (l *ledger) note(what string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch kind := fault.KindOf(err); {
	case err == nil:
		l.did[what]++
	case kind == fault.Busy, kind == fault.Backpressure, kind == fault.Timeout, kind == fault.Canceled, kind == fault.NotReady, kind == fault.BrokenPipe, kind == fault.Transient:
		l.refusals[kind]++
	default:
		l.wrong = append(l.wrong, fmt.Sprintf("%s: %v", what, err))
	}
}

// mark remembers a message.
func (l *ledger) mark(in map[string]bool, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	in[id] = true
}

// left is the messages that must still be there.
func (l *ledger) left() map[string]bool {
	left := maps.Clone(l.sent)
	maps.DeleteFunc(left, func(id string, _ bool) bool { return l.settled[id] })
	return left
}

// users does what users do, all at once, until ctx ends: each its own kind of
// thing, on the local socket of the node. Calls are not repeated: a refusal is
// what is looked at here.
func (p *process) users(ctx context.Context, book *ledger) *sync.WaitGroup {
	c, err := client.New(client.Options{Socket: p.socket, Retry: client.Retry{Tries: 1}})
	if err != nil {
		p.t.Fatal(err)
	}
	var picture bytes.Buffer
	if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 200, 100))); err != nil {
		p.t.Fatal(err)
	}
	shown, err := c.Put(ctx, bytes.NewReader(picture.Bytes()), client.PutOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := c.Follow(ctx, "bob", "ann"); err != nil {
		p.t.Fatal(err)
	}
	var group sync.WaitGroup
	for name, do := range map[string]func(i int) error{
		"put": func(i int) error {
			_, err := c.Put(ctx, strings.NewReader(fmt.Sprintf("text %d about foxes", i)), client.PutOptions{})
			return err
		},
		"name": func(i int) error { _, err := c.SetName(ctx, fmt.Sprint("n", i%50), shown.Address); return err },
		"resolve": func(i int) error {
			_, err := c.Resolve(ctx, shown.Address.String(), client.ResolveOptions{})
			return err
		},
		"publish": func(i int) error { _, err := c.Publish(ctx, "news", []byte(fmt.Sprint(i))); return err },
		"send": func(i int) error {
			sent, err := c.SendMail(ctx, "jobs", []byte(fmt.Sprint(i)), client.MailOptions{})
			if err == nil {
				book.mark(book.sent, sent.ID)
			}
			return err
		},
		"receive": func(i int) error {
			mail, err := c.ReceiveMail(ctx, "jobs", client.ReceiveOptions{Visibility: time.Second})
			if errors.Is(err, fault.NotFound) || err == nil && i%3 == 0 { // every third is left to be received again
				return nil
			}
			if err != nil {
				return err
			}
			book.mark(book.settled, mail.ID) // before: an answer that is lost leaves open whether it is gone
			err = c.AckMail(ctx, "jobs", mail.Receipt)
			if errors.Is(err, fault.NotFound) { // the lease was over
				err = nil
			}
			return err
		},
		"follow": func(i int) error { _, err := c.Follow(ctx, fmt.Sprint("u", i), "ann"); return err },
		"post": func(i int) error {
			_, err := c.Post(ctx, "ann", fmt.Sprint("post ", i), client.PostOptions{})
			return err
		},
		"feed": func(i int) error { _, err := c.Feed(ctx, "bob", client.FeedOptions{}); return err },
		"near": func(i int) error {
			_, err := c.Neighbours(ctx, "ann", client.NeighboursOptions{Hops: 2, Direction: client.DirectionFollowers})
			return err
		},
		"search": func(i int) error { _, err := c.Search(ctx, "foxes", client.SearchOptions{}); return err },
		"thumb": func(i int) error {
			answer, _, err := fetch(fmt.Sprintf("%s/media/%s?thumb=%dx50", p.http, shown.Address, 1+i%100))
			if err != nil {
				return fault.BrokenPipe
			}
			if answer.StatusCode >= 500 && answer.StatusCode != 503 && answer.StatusCode != 504 {
				return fault.New("gate", fault.Internal, "%s", answer.Status)
			}
			return nil
		},
	} {
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				err := do(i)
				if ctx.Err() != nil {
					return
				}
				book.note(name, err)
			}
		})
	}
	return &group
}

// The whole node under everything at once: each kind of work goes on beside the
// others, refusals are typed, a shutdown in the middle of it is clean and in
// time, and no message that was acknowledged is lost. With one core as with all.
func TestWholeNodeUnderMixedLoad(t *testing.T) {
	span := 2 * time.Second
	if long() {
		span = 30 * time.Second
	}
	for _, threads := range []string{"1", "0"} {
		t.Run("MICRO_THREADS="+threads, func(t *testing.T) {
			folder, book := t.TempDir(), newLedger()
			settings := append(append([]string{}, unlimited...), everything...)
			if threads != "0" {
				settings = append(settings, "MICRO_THREADS="+threads)
			}
			p := startWith(t, nil, []string{"--persist", folder}, settings...)
			ctx, cancel := context.WithCancel(t.Context())
			group := p.users(ctx, book)
			time.Sleep(span)
			took := p.stop(syscall.SIGTERM)
			cancel()
			group.Wait()
			t.Logf("done %v; refused %v; %d messages left; stopped in %s", book.did, book.refusals, len(book.left()), took)
			for _, one := range book.wrong[:min(5, len(book.wrong))] {
				t.Errorf("of %d: %s", len(book.wrong), one)
			}
			for _, what := range []string{"put", "name", "resolve", "publish", "send", "receive", "follow", "post", "feed", "near", "search", "thumb"} {
				if book.did[what] == 0 {
					t.Errorf("nobody got to %s", what)
				}
			}
			if text := p.stderr.String(); !strings.Contains(text, " 0 aborted, 0 left running") {
				t.Errorf("the drain was not clean:\n%s", text)
			}
			startWith(t, nil, []string{"--persist", folder}, settings...).checkMail(book)
		})
	}
}

// checkMail receives all messages, and looks that none is missing that was
// acknowledged.
func (p *process) checkMail(book *ledger) {
	p.t.Helper()
	c, left := p.local(), book.left()
	for deadline := time.Now().Add(20 * time.Second); len(left) > 0 && time.Now().Before(deadline); {
		mail, err := c.ReceiveMail(p.t.Context(), "jobs", client.ReceiveOptions{Visibility: time.Minute, Wait: time.Second})
		if errors.Is(err, fault.NotFound) {
			continue // some may be leased for a moment yet
		}
		if err != nil {
			p.t.Fatal(err)
		}
		delete(left, mail.ID)
	}
	dead, err := c.DeadMail(p.t.Context(), "jobs", "", 100)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, letter := range dead.Letters {
		delete(left, letter.ID)
	}
	if len(left) > 0 {
		p.t.Errorf("%d messages that were acknowledged are gone", len(left))
	}
	p.stop(syscall.SIGTERM)
}
