package overlay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/observe"
	"micronode/internal/overlay/session"
	"micronode/internal/store"
	"micronode/internal/testkit"
)

// request sends a request and reads the whole answer.
func (n *testNode) request(method, path, body string) (int, string) {
	n.t.Helper()
	r, err := http.NewRequestWithContext(n.t.Context(), method, n.url+path, strings.NewReader(body))
	testkit.Must(n.t, err)
	answer, err := http.DefaultClient.Do(r)
	testkit.Must(n.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	testkit.Must(n.t, err)
	return answer.StatusCode, string(text)
}

// sdk is a client of the node.
func (n *testNode) sdk() *client.Client {
	n.t.Helper()
	c, err := client.New(client.Options{URL: n.url})
	testkit.Must(n.t, err)
	n.t.Cleanup(c.Close)
	return c
}

func TestPublishAndSubscribeOverHTTP(t *testing.T) {
	a, b := startNode(t, func(*Spec) {}), startNode(t, func(*Spec) {})
	if _, err := a.sdk().AddPeer(t.Context(), b.contact().String()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.sdk().AddPeer(t.Context(), a.contact().String()); err != nil {
		t.Fatal(err)
	}
	a.waitSession(b)
	b.waitSession(a)
	sub, err := b.sdk().Subscribe(t.Context(), "news/ä b")
	testkit.Must(t, err)
	defer sub.Close()
	published, err := a.sdk().Publish(t.Context(), "news/ä b", []byte("storm"))
	if err != nil || published.Peers != 1 {
		t.Fatalf("%+v, %v", published, err)
	}
	message, err := sub.Next(t.Context())
	if err != nil || string(message.Data) != "storm" || message.ID != published.ID || message.Origin != a.ID().String() || message.Topic != "news/ä b" || !message.Signed {
		t.Errorf("%+v, %v", message, err)
	}
	peers, err := a.sdk().Peers(t.Context())
	if err != nil || len(peers) != 1 || peers[0].ID != b.ID().String() || peers[0].State != client.PeerActive || !peers[0].PQ {
		t.Errorf("%+v, %v", peers, err)
	}
}

func TestAnObjectIsFetchedOverHTTP(t *testing.T) {
	a, b := startNode(t, func(*Spec) {}), startNode(t, func(*Spec) {})
	connectNodes(t, a, b)
	put, _, err := a.store.Put(t.Context(), strings.NewReader("hello, world\n"), store.PutOptions{Size: store.Unknown})
	testkit.Must(t, err)
	object, err := b.sdk().Fetch(t.Context(), put.Address, a.ID().String())
	if err != nil || object.Size != 13 || !object.Created {
		t.Errorf("%+v, %v", object, err)
	}
	if object, err = b.sdk().Fetch(t.Context(), put.Address, ""); err != nil || object.Created {
		t.Errorf("the second time: %+v, %v", object, err)
	}
	stranger := newRawPeer(t)
	if _, err := a.sdk().Fetch(t.Context(), b3.Of([]byte("nobody has this")), stranger.id.String()); fault.KindOf(err) != fault.NoRoute && fault.KindOf(err) != fault.NotFound {
		t.Errorf("from a peer that is not there: %v", err)
	}
}

func TestBadRequests(t *testing.T) {
	a := startNode(t, func(*Spec) {})
	own := a.contact().String()
	for name, c := range map[string]struct {
		method, path, body string
		status             int
		code               string
	}{
		"a topic with a control character": {"POST", "/overlay/publish/a%07b", "x", 400, "Malformed"},
		"a topic that is too long":         {"POST", "/overlay/publish/" + strings.Repeat("x", 129), "x", 400, "Malformed"},
		"no topic":                         {"POST", "/overlay/publish/", "x", 400, "Malformed"},
		"to hear a bad topic":              {"GET", "/overlay/subscribe/a%07b", "", 400, "Malformed"},
		"more than a message may be":       {"POST", "/overlay/publish/x", strings.Repeat("x", oap.MaxData+1), 413, "BodyTooLarge"},
		"a peer without an address":        {"POST", "/overlay/peers", `{"peer":"` + a.ID().String() + `"}`, 400, "Malformed"},
		"a peer that is itself":            {"POST", "/overlay/peers", `{"peer":"` + own + `"}`, 400, "Malformed"},
		"a peer with a bad ID":             {"POST", "/overlay/peers", `{"peer":"x@127.0.0.1:1"}`, 400, "Malformed"},
		"an unknown field":                 {"POST", "/overlay/peers", `{"pear":""}`, 400, "Malformed"},
		"to remove nobody":                 {"DELETE", "/overlay/peers/" + newRawPeer(t).id.String(), "", 404, "NotFound"},
		"to remove what is no ID":          {"DELETE", "/overlay/peers/x", "", 400, "Malformed"},
		"to fetch what is no address":      {"POST", "/overlay/fetch/b3:x", "", 400, "Malformed"},
		"to fetch from what is no ID":      {"POST", "/overlay/fetch/b3:" + strings.Repeat("0", 64), `{"peer":"x"}`, 400, "Malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			status, body := a.request(c.method, c.path, c.body)
			var problem struct{ Code, Next string }
			_ = json.Unmarshal([]byte(body), &problem)
			if status != c.status || problem.Code != c.code || problem.Next == "" {
				t.Errorf("%d %s", status, body)
			}
		})
	}
}

func TestPeersComeAndGo(t *testing.T) {
	first, second := newRawPeer(t), newRawPeer(t)
	a := startNode(t, func(s *Spec) { s.Config.Peers = []string{first.id.String() + "@" + unusedAddr} })
	named := second.id.String() + "@" + unusedAddr
	if status, body := a.request("POST", "/overlay/peers", `{"peer":"`+named+`"}`); status != http.StatusCreated || !strings.Contains(body, second.id.String()) {
		t.Errorf("added: %d %s", status, body)
	}
	if status, _ := a.request("POST", "/overlay/peers", `{"peer":"`+named+`"}`); status != http.StatusOK {
		t.Errorf("added again: %d", status)
	}
	if status, body := a.request("DELETE", "/overlay/peers/"+first.id.String(), ""); status != http.StatusConflict || !strings.Contains(body, "overlay.peers") {
		t.Errorf("what the configuration names: %d %s", status, body)
	}
	second.dial(a.Addr().String())
	if status, _ := a.request("DELETE", "/overlay/peers/"+second.id.String(), ""); status != http.StatusNoContent {
		t.Errorf("removed: %d", status)
	}
	testkit.WaitFor(t, "the session of a removed peer ends", func() bool { return a.sessions.Find(second.id) == nil })
	if _, answer := second.hello(a.Addr().String(), ""); answer.(*oap.Error).Code != oap.Unauth {
		t.Errorf("answered %#v", answer)
	}
	next := a.config
	next.Peers = nil
	testkit.Must(t, a.Reconfigure(next))
	testkit.WaitFor(t, "a reload took the first one out", func() bool { return len(a.Peers()) == 0 })
}

// A peer that was removed after it was admitted, and before it had its session,
// does not stay.
func TestWhoWasInTheDoorwayIsShownOut(t *testing.T) {
	a := startNode(t, func(*Spec) {})
	late := newRawPeer(t)
	if _, err := a.AddPeer(Contact{ID: late.id, Addrs: []string{unusedAddr}}); err != nil {
		t.Fatal(err)
	}
	late.dial(a.Addr().String())
	testkit.WaitFor(t, "there is a session", func() bool { return a.sessions.Find(late.id) != nil })
	a.contacts.mu.Lock()
	delete(a.contacts.named, late.id)
	a.contacts.mu.Unlock()
	testkit.WaitFor(t, "it is shown out", func() bool { return a.sessions.Find(late.id) == nil })
}

func TestAStrangerNeedsAToken(t *testing.T) {
	a := startNode(t, func(s *Spec) {
		s.Join = func(token string) error {
			if token == "good" {
				return nil
			}
			return fault.New("test", fault.Unauthorized, "no")
		}
	})
	stranger := newRawPeer(t)
	for _, token := range []string{"", "bad"} {
		if _, answer := stranger.hello(a.Addr().String(), token); answer.(*oap.Error).Code != oap.Unauth {
			t.Errorf("with %q: %#v", token, answer)
		}
		if event := a.nextEvent(); event.Type != AuthFailure || event.Peer != stranger.id {
			t.Errorf("told %+v", event)
		}
	}
	if _, answer := stranger.hello(a.Addr().String(), "good"); oap.KindOf(answer) != "hello_ack" {
		t.Errorf("with a token: %#v", answer)
	}
	if event := a.nextEvent(); event.Type != SessionOpened || event.Peer != stranger.id || !event.PQ {
		t.Errorf("told %+v", event)
	}
}

// A peer that sends a forged message gets the reason and is expelled, and that
// is an auth failure; what is merely old or known may come from any peer. It
// may reconnect.
func TestAForgerIsPartedFrom(t *testing.T) {
	a := startNode(t, func(*Spec) {})
	rude := newRawPeer(t)
	if _, err := a.AddPeer(Contact{ID: rude.id, Addrs: []string{unusedAddr}}); err != nil {
		t.Fatal(err)
	}
	sub := a.subscribe("news")
	conn := rude.dial(a.Addr().String())
	good := rude.signedMessage("news", 1, time.Now())
	rude.send(conn, 2, good)
	if d := receive(t, sub); d.Seq != 1 {
		t.Fatalf("heard %+v", d)
	}
	rude.send(conn, 3, corruptSignature(good))                                                      // a duplicate
	rude.send(conn, 4, corruptSignature(rude.signedMessage("news", 2, time.Now().Add(-time.Hour)))) // too old
	rude.send(conn, 5, rude.signedMessage("news", 3, time.Now()))
	if d := receive(t, sub); d.Seq != 3 {
		t.Fatalf("heard %+v", d)
	}
	rude.send(conn, 6, corruptSignature(rude.signedMessage("news", 4, time.Now())))
	said := rude.closingMessages(conn)
	if want := []string{`Malformed 6: a forged message: the signature of the letter on "news" does not verify`, "bye: forged letter"}; !slices.Equal(said, want) {
		t.Errorf("was told %q", said)
	}
	_ = conn.Close()
	for _, want := range []EventType{SessionOpened, AuthFailure, SessionClosed} {
		event := a.nextEvent()
		if event.Type != want || event.Peer != rude.id || (event.Detail == "") != (want == SessionOpened) {
			t.Errorf("told %+v, want %s", event, want)
		}
	}
	if got := counterSum(t, a, "session_close_total", "forged"); got != 1 {
		t.Errorf("%v sessions were counted", got)
	}
	rude.dial(a.Addr().String())
	testkit.WaitFor(t, "it is back", func() bool { return a.sessions.Find(rude.id) != nil })
}

// A guest is known while it is connected, and for as long as a handshake may
// take. A token must not make the book grow with every key that it is tried
// with.
func TestGuestsAreForgotten(t *testing.T) {
	b := newContactBook(func([]Contact) {})
	var guest oap.PeerID
	here, nobody := []*session.Session{new(session.Session)}, []*session.Session(nil) // its peer is the guest
	now := time.Now()
	after := func(d time.Duration) time.Time { now = now.Add(d); return now }
	b.addGuest(guest, "token", now)
	for _, step := range []struct {
		what      string
		passed    time.Duration
		sessions  []*session.Session
		strangers int
	}{
		{"its handshake is under way", 3 * time.Second, nobody, 0},
		{"it has come", 0, here, 0},
		{"it stays", time.Hour, here, 0},
		{"it is between two sessions", 3 * time.Second, nobody, 0},
		{"it is back", 0, here, 0},
		{"it has left", 5 * time.Second, nobody, 0},
		{"it needs its token again", 0, here, 1},
	} {
		if got := b.unauthorized(step.sessions, after(step.passed), 4*time.Second); len(got) != step.strangers {
			t.Errorf("%s: %d strangers, want %d", step.what, len(got), step.strangers)
		}
	}
	b.addGuest(guest, "token", now)
	if b.unauthorized(nobody, after(time.Minute), 4*time.Second); len(b.guests) != 0 {
		t.Error("one that never came is remembered")
	}
}

// snapshotSource is a list of peers that is kept elsewhere.
type snapshotSource struct{ *flow.Snapshot[[]Contact] }

func (s snapshotSource) Peers(ctx context.Context, since flow.Version) ([]Contact, flow.Version, error) {
	return s.WaitForChange(ctx, since)
}

func TestPeersOfASource(t *testing.T) {
	a := startNode(t, func(*Spec) {})
	list := snapshotSource{flow.NewSnapshot[[]Contact](flow.NewInventory(), flow.SnapshotSpec{Service: "registry", Name: "peers"}, nil)}
	b := startNode(t, func(s *Spec) { s.Sources = []PeerSource{list} })
	addContact(t, a, b)
	list.Store([]Contact{a.contact()})
	a.waitSession(b)
	b.waitSession(a)
	list.Store(nil)
	testkit.WaitFor(t, "who is not on the list any more is let go", func() bool { return len(b.Peers()) == 0 })
}

func TestAnOpenOverlayLetsEverybodyIn(t *testing.T) {
	a := startNode(t, func(s *Spec) { s.Config.Open = true })
	newRawPeer(t).dial(a.Addr().String())
}

func TestTheDefaultPortIsTaken(t *testing.T) {
	a := startNode(t, func(*Spec) {})
	b := startNode(t, func(s *Spec) { s.Config.Addr, s.AnyPort = a.Addr().String(), true })
	if a.Addr().String() == b.Addr().String() {
		t.Fatal("two nodes on one port")
	}
	if reasons := b.readiness.Evaluate().Reasons; !slices.ContainsFunc(reasons, func(r observe.Reason) bool { return strings.Contains(r.Reason, "is taken") }) {
		t.Errorf("%+v", reasons)
	}
}

func TestSlowSubscribersGetTheirLag(t *testing.T) {
	a := startNode(t, func(*Spec) {})
	sub := a.subscribe("flood")
	for i := range 3000 {
		a.mustPublish("flood", string(rune('a'+i%26))+time.Duration(i).String())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := sub.Recv(ctx)
	if lag, behind := errors.AsType[*flow.LagError](err); !behind || lag.Missed == 0 {
		t.Fatalf("%v", err)
	}
	if d, err := sub.Recv(ctx); err != nil || !bytes.Contains(d.Data, []byte("µs")) {
		t.Errorf("after the lag: %v, %v", d, err)
	}
}

// A guest stays as long as its token is valid: when that has expired, or was
// revoked, its session is closed with the reason, and it is counted. One that
// was named meanwhile stays.
func TestAGuestLeavesWithItsToken(t *testing.T) {
	var over atomic.Bool
	var asked atomic.Int64
	m := startNode(t, func(s *Spec) {
		s.Join = func(token string) error {
			asked.Add(1)
			if token != "ticket" || over.Load() {
				return fault.New("token", fault.Unauthorized, "expired")
			}
			return nil
		}
	})
	guest, named := newRawPeer(t), newRawPeer(t)
	conn, answer := guest.hello(m.Addr().String(), "ticket")
	if _, welcome := answer.(*oap.HelloAck); !welcome {
		t.Fatalf("answered %#v", answer)
	}
	_, answer = named.hello(m.Addr().String(), "ticket")
	if _, welcome := answer.(*oap.HelloAck); !welcome {
		t.Fatalf("answered %#v", answer)
	}
	testkit.WaitFor(t, "both are here", func() bool { return len(m.sessions.Active()) == 2 })
	m.contacts.add(Contact{ID: named.id, Addrs: []string{unusedAddr}})

	testkit.WaitFor(t, "the token of the guest was looked at again", func() bool { return asked.Load() >= 4 })
	if n := len(m.sessions.Active()); n != 2 {
		t.Fatalf("with good tokens, %d are here", n)
	}
	over.Store(true)
	said := guest.closingMessages(conn)
	if len(said) != 1 || !strings.HasPrefix(said[0], string(oap.Unauth)) || !strings.Contains(said[0], "token") {
		t.Errorf("it was told %q", said)
	}
	testkit.WaitFor(t, "the guest is gone, and counted", func() bool {
		return len(m.sessions.Active()) == 1 && counterSum(t, m, "session_close_total", "unauth") == 1
	})
	if left := m.sessions.Active()[0].Peer(); left != named.id {
		t.Errorf("%s is left", left)
	}
	if _, answer := guest.hello(m.Addr().String(), "ticket"); answer.(*oap.Error).Code != oap.Unauth {
		t.Errorf("it came again: %#v", answer)
	}
}
