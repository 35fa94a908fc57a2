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

// allFacets turns all facets on.
var allFacets = []string{
	"MICRO_FACETS__FEED__ENABLED=true", "MICRO_FACETS__GRAPH__ENABLED=true", "MICRO_FACETS__SEARCH__ENABLED=true", "MICRO_FACETS__MEDIA__ENABLED=true",
}

// fullNode is a whole node, with everything that its users need: an origin for
// the edge, routers for the index, signers for the registry, a peer for the
// overlay.
type fullNode struct {
	*process
	settings  []string // with which the node was started
	origin    *origin
	council   *testRegistry
	neighbour *process
	picture   b3.Address // an object that is one
	received  atomic.Int64
}

// upstreamLatency is how long the origin and the routers take to answer: so
// there is pending work at every moment.
const upstreamLatency = 40 * time.Millisecond

// fillUsers is how many users request what the node has to fetch.
const fillUsers = 6

// newFullNode starts a program with every part on.
func newFullNode(t *testing.T, program string, arguments []string, environment ...string) *fullNode {
	t.Helper()
	origin, settings := newOrigin(t, func(rw http.ResponseWriter, r *http.Request) {
		sleepRequest(r, upstreamLatency)
		serveAsset(rw, r)
	})
	settings = append(append(append(settings, delegatedSettings(newFakeRouters(t, 2, respondAfter(upstreamLatency)))...), allFacets...), environment...)
	return &fullNode{process: launch(t, program, nil, arguments, settings...), settings: settings, origin: origin, council: newTestRegistry(t)}
}

// prepare sets up what exists before the load starts: a log, a picture, and a
// peer with subscribed topics.
func (f *fullNode) prepare(ctx context.Context) {
	f.t.Helper()
	f.council.initRegistry(f.process)
	var picture bytes.Buffer
	if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 200, 100))); err != nil {
		f.t.Fatal(err)
	}
	shown, err := f.local().Put(ctx, &picture, client.PutOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	f.picture = shown.Address
	if _, err := f.local().Follow(ctx, "bob", "ann"); err != nil {
		f.t.Fatal(err)
	}
	addr, id := f.overlayEndpoint()
	f.neighbour = start(f.t, nil, unlimited...)
	there, thereID := f.neighbour.overlayEndpoint()
	for _, call := range []struct {
		from *process
		to   string
	}{{f.process, thereID + "@" + there}, {f.neighbour, id + "@" + addr}} {
		if _, err := call.from.local().AddPeer(ctx, call.to); err != nil {
			f.t.Fatal(err)
		}
	}
	f.awaitSessions(1)
	f.neighbour.awaitSessions(1)
}

// countMessages counts the messages that the node receives from its peer, until
// ctx ends.
func (f *fullNode) countMessages(ctx context.Context) {
	f.t.Helper()
	subscription, err := f.local().Subscribe(ctx, "talk")
	if err != nil {
		f.t.Fatal(err)
	}
	go func() {
		defer subscription.Close()
		for ctx.Err() == nil {
			if _, err := subscription.Next(ctx); err == nil {
				f.received.Add(1)
			} else if !errors.As(err, new(*client.Lagged)) {
				return
			}
		}
	}()
}

// workLog is what the node has acknowledged, and how it has refused.
type workLog struct {
	mu         sync.Mutex
	sent       map[string]bool // messages that were accepted
	acked      map[string]bool // those that a receiver has started to acknowledge: maybe before the sender knew that it was sent
	objects    map[string]bool
	names      map[string]bool
	follows    map[string]bool // of ann
	completed  map[string]int
	refusals   map[fault.Kind]int
	violations []string
}

func newWorkLog() *workLog {
	return &workLog{sent: map[string]bool{}, acked: map[string]bool{}, objects: map[string]bool{}, names: map[string]bool{}, follows: map[string]bool{},
		completed: map[string]int{}, refusals: map[fault.Kind]int{}}
}

// count counts one call. A node under load may answer that it is busy, or that
// it is stopping; everything else is wrong.
func (l *workLog) count(what string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch kind := fault.KindOf(err); {
	case err == nil:
		l.completed[what]++
	case kind == fault.Busy, kind == fault.Backpressure, kind == fault.Timeout, kind == fault.Canceled, kind == fault.NotReady, kind == fault.BrokenPipe, kind == fault.Transient:
		l.refusals[kind]++
	default:
		l.violations = append(l.violations, fmt.Sprintf("%s: %v", what, err))
	}
}

// acknowledge records something that was acknowledged, if there was no error.
func (l *workLog) acknowledge(in map[string]bool, id string, err error) error {
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		in[id] = true
	}
	return err
}

// unacked is the messages that must still be there.
func (l *workLog) unacked() map[string]bool {
	left := maps.Clone(l.sent)
	maps.DeleteFunc(left, func(id string, _ bool) bool { return l.acked[id] })
	return left
}

// total is how many calls were answered as they should be, and how many not.
func (l *workLog) total() (good, bad int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.completed {
		good += n
	}
	for _, n := range l.refusals {
		bad += n
	}
	return good, bad + len(l.violations)
}

// operations is the operations of users, each of them a kind of its own, by
// name. Calls are not retried: refusals are what is measured here.
func (f *fullNode) operations(ctx context.Context, book *workLog) map[string]func(i int) error {
	c, err := client.New(client.Options{Socket: f.socket, Retry: client.Retry{Tries: 1}})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(c.Close)
	there := f.neighbour.local()
	all := map[string]func(i int) error{
		"put": func(i int) error {
			kept, err := c.Put(ctx, strings.NewReader(fmt.Sprintf("text %d about foxes", i)), client.PutOptions{})
			return book.acknowledge(book.objects, kept.Address.String(), err)
		},
		"name": func(i int) error {
			name := fmt.Sprint("n", i%50)
			_, err := c.SetName(ctx, name, f.picture)
			return book.acknowledge(book.names, name, err)
		},
		"resolve": func(int) error { _, err := c.Resolve(ctx, f.picture.String(), client.ResolveOptions{}); return err },
		"seek": func(i int) error {
			_, err := c.Providers(ctx, testAddress("seek", i), client.ProvidersOptions{})
			return err
		},
		"publish": func(i int) error { _, err := c.Publish(ctx, "news", []byte(fmt.Sprint(i))); return err },
		"gossip":  func(i int) error { _, err := there.Publish(ctx, "talk", []byte(fmt.Sprint(i))); return err },
		"send": func(i int) error {
			sent, err := c.SendMail(ctx, "jobs", []byte(fmt.Sprint(i)), client.MailOptions{})
			return book.acknowledge(book.sent, sent.ID, err)
		},
		"receive": func(i int) error { return f.receive(ctx, c, book, i) },
		"follow": func(i int) error {
			name := fmt.Sprint("u", i)
			_, err := c.Follow(ctx, name, "ann")
			return book.acknowledge(book.follows, name, err)
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
		"thumb": func(i int) error {
			return f.fetchAndCompare(fmt.Sprintf("/media/%s?thumb=%dx50", f.picture, 1+i%100), nil)
		},
		"commit": func(int) error { return f.council.commitChange(ctx, c) },
	}
	for one := range fillUsers {
		all[fmt.Sprint("fill ", one)] = func(i int) error { return f.fetchAsset(fmt.Sprintf("/%d/%d", one, i)) }
	}
	return all
}

// commitChange makes a version of an item of its own, with two signers.
func (tr *testRegistry) commitChange(ctx context.Context, by *client.Client) error {
	n := tr.itemSerial.Add(1)
	op := fmt.Sprintf(`{"op":"put","item":{"kind":"name","id":"name-%d","manifest":"b3:%064x"}}`, n, n)
	proposed, err := by.Propose(ctx, client.ProposalRequest{SchemaVersion: "1.0.0", Ops: []json.RawMessage{json.RawMessage(op)}})
	for i := 0; i < 2 && err == nil; i++ {
		_, err = by.Approve(ctx, proposed.ProposalID, client.Approval{SignerID: fmt.Sprint("signer-", i), Algo: "ed25519",
			Sig: ed25519.Sign(tr.signers[i], proposed.SignThis), SignedAt: time.Now().UTC().Truncate(time.Millisecond)})
	}
	if err != nil {
		return err
	}
	head, err := by.Commit(ctx, proposed.ProposalID)
	if err == nil {
		tr.acknowledge(head)
	}
	return err
}

// fetchAsset requests something that the node has to fetch.
func (f *fullNode) fetchAsset(path string) error {
	return f.fetchAndCompare("/edge/assets/"+f.origin.host+path, assetBody(path, assetSize))
}

// receive receives a message and acknowledges it; every third is left to be
// received again.
func (f *fullNode) receive(ctx context.Context, c *client.Client, book *workLog, i int) error {
	mail, err := c.ReceiveMail(ctx, "jobs", client.ReceiveOptions{Visibility: time.Second})
	if errors.Is(err, fault.NotFound) || err == nil && i%3 == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	_ = book.acknowledge(book.acked, mail.ID, nil) // before: a lost answer leaves open whether it was acknowledged
	err = c.AckMail(ctx, "jobs", mail.Receipt)
	if errors.Is(err, fault.NotFound) { // the lease had expired
		err = nil
	}
	return err
}

// fetchAndCompare makes a request and compares the answer, if there is
// something to compare it with.
func (f *fullNode) fetchAndCompare(path string, want []byte) error {
	answer, body, err := fetch(f.http + path)
	switch {
	case err != nil:
		return fault.WrapKind("gate", fault.BrokenPipe, err)
	case answer.StatusCode != http.StatusOK:
		kind, _ := fault.ParseKind(problemCode(body))
		return fault.New("gate", kind, "%s: %s", path, answer.Status)
	case want != nil && !bytes.Equal(body, want):
		return fault.New("gate", fault.IntegrityFail, "%s: %d other bytes", path, len(body))
	}
	return nil
}

// runUsers runs the operations of users, all at once, until ctx ends: each its
// own kind, again and again, with a pause between two starts if there is one.
func (f *fullNode) runUsers(ctx context.Context, book *workLog, every time.Duration) *sync.WaitGroup {
	f.t.Helper()
	f.countMessages(ctx)
	var group sync.WaitGroup
	for name, do := range f.operations(ctx, book) {
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				next := time.Now().Add(every)
				err := do(i)
				if ctx.Err() != nil {
					return
				}
				book.count(name, err)
				select {
				case <-ctx.Done():
				case <-time.After(time.Until(next)):
				}
			}
		})
	}
	return &group
}

// check checks that every client succeeded with something, and that no answer
// was one that a node must not give.
func (f *fullNode) check(book *workLog) {
	f.t.Helper()
	for _, one := range book.violations[:min(5, len(book.violations))] {
		f.t.Errorf("of %d: %s", len(book.violations), one)
	}
	for what := range f.operations(f.t.Context(), book) {
		if book.completed[what] == 0 {
			f.t.Errorf("nobody got to %s", what)
		}
	}
	if f.received.Load() == 0 {
		f.t.Error("nothing was heard of the neighbour")
	}
}
