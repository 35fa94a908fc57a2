//go:build gates

package gates

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
)

// everything turns all facets on.
var everything = []string{
	"MICRO_FACETS__FEED__ENABLED=true", "MICRO_FACETS__GRAPH__ENABLED=true", "MICRO_FACETS__SEARCH__ENABLED=true", "MICRO_FACETS__MEDIA__ENABLED=true",
}

// town is a whole node, and around it everything that its users need: an origin
// for the edge, routers for the index, a council for the registry, a neighbour
// for the overlay.
type town struct {
	*process
	settings  []string // with which the node was started
	origin    *origin
	council   *council
	neighbour *process
	picture   b3.Address // an object that is one
	heard     atomic.Int64
}

// farAway is how long the origin and the routers take to answer: so there is
// work in hand at every moment.
const farAway = 40 * time.Millisecond

// fillers is how many users ask for what the node has to fetch.
const fillers = 6

// newTown starts a program with every part on.
func newTown(t *testing.T, program string, arguments []string, environment ...string) *town {
	t.Helper()
	origin, settings := newOrigin(t, func(rw http.ResponseWriter, r *http.Request) {
		pause(r, farAway)
		serveNumbered(rw, r)
	})
	settings = append(append(append(settings, asking(routers(t, 2, knows(farAway)))...), everything...), environment...)
	return &town{process: launch(t, program, nil, arguments, settings...), settings: settings, origin: origin, council: newCouncil(t)}
}

// settle brings in what is there before anybody uses it: a log, a picture, and
// a neighbour who is listened to.
func (w *town) settle(ctx context.Context) {
	w.t.Helper()
	w.council.begin(w.process)
	var picture bytes.Buffer
	if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 200, 100))); err != nil {
		w.t.Fatal(err)
	}
	shown, err := w.local().Put(ctx, &picture, client.PutOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.picture = shown.Address
	if _, err := w.local().Follow(ctx, "bob", "ann"); err != nil {
		w.t.Fatal(err)
	}
	addr, id := w.overlayOf()
	w.neighbour = start(w.t, nil, unlimited...)
	there, thereID := w.neighbour.overlayOf()
	for _, call := range []struct {
		from *process
		to   string
	}{{w.process, thereID + "@" + there}, {w.neighbour, id + "@" + addr}} {
		if _, err := call.from.local().AddPeer(ctx, call.to); err != nil {
			w.t.Fatal(err)
		}
	}
	w.connected(1)
	w.neighbour.connected(1)
}

// listen counts what the node hears from its neighbour, until ctx ends.
func (w *town) listen(ctx context.Context) {
	w.t.Helper()
	ear, err := w.local().Subscribe(ctx, "talk")
	if err != nil {
		w.t.Fatal(err)
	}
	go func() {
		defer ear.Close()
		for ctx.Err() == nil {
			if _, err := ear.Next(ctx); err == nil {
				w.heard.Add(1)
			} else if !errors.As(err, new(*client.Lagged)) {
				return
			}
		}
	}()
}

// ledger is what the node has acknowledged, and how it has refused.
type ledger struct {
	mu       sync.Mutex
	sent     map[string]bool // messages that were taken in
	settled  map[string]bool // those that somebody set out to acknowledge: maybe before the sender knew that it was sent
	objects  map[string]bool
	names    map[string]bool
	follows  map[string]bool // of ann
	did      map[string]int
	refusals map[fault.Kind]int
	wrong    []string
}

func newLedger() *ledger {
	return &ledger{sent: map[string]bool{}, settled: map[string]bool{}, objects: map[string]bool{}, names: map[string]bool{}, follows: map[string]bool{},
		did: map[string]int{}, refusals: map[fault.Kind]int{}}
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

// mark remembers something that was acknowledged, unless it was not.
func (l *ledger) mark(in map[string]bool, id string, err error) error {
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		in[id] = true
	}
	return err
}

// left is the messages that must still be there.
func (l *ledger) left() map[string]bool {
	left := maps.Clone(l.sent)
	maps.DeleteFunc(left, func(id string, _ bool) bool { return l.settled[id] })
	return left
}

// total is how many calls were answered as they should be, and how many not.
func (l *ledger) total() (good, bad int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.did {
		good += n
	}
	for _, n := range l.refusals {
		bad += n
	}
	return good, bad + len(l.wrong)
}

// deeds is what users do, each of them a kind of its own, by name. Calls are not
// repeated: a refusal is what is looked at here.
func (w *town) deeds(ctx context.Context, book *ledger) map[string]func(i int) error {
	c, err := client.New(client.Options{Socket: w.socket, Retry: client.Retry{Tries: 1}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	there := w.neighbour.local()
	all := map[string]func(i int) error{
		"put": func(i int) error {
			kept, err := c.Put(ctx, strings.NewReader(fmt.Sprintf("text %d about foxes", i)), client.PutOptions{})
			return book.mark(book.objects, kept.Address.String(), err)
		},
		"name": func(i int) error {
			name := fmt.Sprint("n", i%50)
			_, err := c.SetName(ctx, name, w.picture)
			return book.mark(book.names, name, err)
		},
		"resolve": func(int) error { _, err := c.Resolve(ctx, w.picture.String(), client.ResolveOptions{}); return err },
		"seek":    func(i int) error { _, err := c.Providers(ctx, keyOf("seek", i), client.ProvidersOptions{}); return err },
		"publish": func(i int) error { _, err := c.Publish(ctx, "news", []byte(fmt.Sprint(i))); return err },
		"gossip":  func(i int) error { _, err := there.Publish(ctx, "talk", []byte(fmt.Sprint(i))); return err },
		"send": func(i int) error {
			sent, err := c.SendMail(ctx, "jobs", []byte(fmt.Sprint(i)), client.MailOptions{})
			return book.mark(book.sent, sent.ID, err)
		},
		"receive": func(i int) error { return w.receive(ctx, c, book, i) },
		"follow": func(i int) error {
			name := fmt.Sprint("u", i)
			_, err := c.Follow(ctx, name, "ann")
			return book.mark(book.follows, name, err)
		},
		"post": func(i int) error {
			_, err := c.Post(ctx, "ann", fmt.Sprint("post ", i), client.PostOptions{})
			return err
		},
		"feed": func(int) error { _, err := c.Feed(ctx, "bob", client.FeedOptions{}); return err },
		"near": func(int) error {
			_, err := c.Neighbours(ctx, "ann", client.NeighboursOptions{Hops: 2, Direction: client.DirectionFollowers})
			return err
		},
		"search": func(int) error { _, err := c.Search(ctx, "foxes", client.SearchOptions{}); return err },
		"thumb":  func(i int) error { return w.look(fmt.Sprintf("/media/%s?thumb=%dx50", w.picture, 1+i%100), nil) },
		"commit": func(int) error { return w.council.change(ctx, c) },
	}
	for one := range fillers {
		all[fmt.Sprint("fill ", one)] = func(i int) error { return w.fillOne(fmt.Sprintf("/%d/%d", one, i)) }
	}
	return all
}

// change makes a version of an item of its own, with two who sign it.
func (c *council) change(ctx context.Context, by *client.Client) error {
	n := c.items.Add(1)
	op := fmt.Sprintf(`{"op":"put","item":{"kind":"name","id":"name-%d","manifest":"b3:%064x"}}`, n, n)
	proposed, err := by.Propose(ctx, client.ProposalRequest{SchemaVersion: "1.0.0", Ops: []json.RawMessage{json.RawMessage(op)}})
	for i := 0; i < 2 && err == nil; i++ {
		_, err = by.Approve(ctx, proposed.ProposalID, client.Approval{SignerID: fmt.Sprint("signer-", i), Algo: "ed25519",
			Sig: ed25519.Sign(c.signers[i], proposed.SignThis), SignedAt: time.Now().UTC().Truncate(time.Millisecond)})
	}
	if err != nil {
		return err
	}
	head, err := by.Commit(ctx, proposed.ProposalID)
	if err == nil {
		c.acknowledge(head)
	}
	return err
}

// fillOne asks for something that the node has to fetch.
func (w *town) fillOne(path string) error {
	return w.look("/edge/assets/"+w.origin.host+path, numbered(path, assetSize))
}

// receive takes a message and acknowledges it; every third is left to be
// received again.
func (w *town) receive(ctx context.Context, c *client.Client, book *ledger, i int) error {
	mail, err := c.ReceiveMail(ctx, "jobs", client.ReceiveOptions{Visibility: time.Second})
	if errors.Is(err, fault.NotFound) || err == nil && i%3 == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	_ = book.mark(book.settled, mail.ID, nil) // before: an answer that is lost leaves open whether it is gone
	err = c.AckMail(ctx, "jobs", mail.Receipt)
	if errors.Is(err, fault.NotFound) { // the lease was over
		err = nil
	}
	return err
}

// look asks for something and compares it, if there is something to compare it
// with.
func (w *town) look(path string, want []byte) error {
	answer, body, err := fetch(w.http + path)
	switch {
	case err != nil:
		return fault.WrapKind("gate", fault.BrokenPipe, err)
	case answer.StatusCode != http.StatusOK:
		kind, _ := fault.ParseKind(problem(body))
		return fault.New("gate", kind, "%s: %s", path, answer.Status)
	case want != nil && !bytes.Equal(body, want):
		return fault.New("gate", fault.IntegrityFail, "%s: %d other bytes", path, len(body))
	}
	return nil
}

// users do what users do, all at once, until ctx ends: each its own kind of
// thing, again and again, with a pause between two beginnings if there is one.
func (w *town) users(ctx context.Context, book *ledger, every time.Duration) *sync.WaitGroup {
	w.t.Helper()
	w.listen(ctx)
	var group sync.WaitGroup
	for name, do := range w.deeds(ctx, book) {
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				next := time.Now().Add(every)
				err := do(i)
				if ctx.Err() != nil {
					return
				}
				book.note(name, err)
				select {
				case <-ctx.Done():
				case <-time.After(time.Until(next)):
				}
			}
		})
	}
	return &group
}

// judge looks that everybody got to do something, and that nobody was told
// anything that a node may not say.
func (w *town) judge(book *ledger) {
	w.t.Helper()
	for _, one := range book.wrong[:min(5, len(book.wrong))] {
		w.t.Errorf("of %d: %s", len(book.wrong), one)
	}
	for what := range w.deeds(w.t.Context(), book) {
		if book.did[what] == 0 {
			w.t.Errorf("nobody got to %s", what)
		}
	}
	if w.heard.Load() == 0 {
		w.t.Error("nothing was heard of the neighbour")
	}
}
