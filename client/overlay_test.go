package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"micronode/b3"
	"micronode/fault"
)

func TestPeers(t *testing.T) {
	node := NewFakeNode()
	c := serve(t, node)
	if peers, err := c.Peers(t.Context()); err != nil || len(peers) != 0 {
		t.Errorf("%v, %v", peers, err)
	}
	want := Peer{ID: "abc", Addr: "10.0.0.1:9500", State: PeerDialing, Dialed: true}
	for range 2 { // the second time it is there
		if got, err := c.AddPeer(t.Context(), "abc@10.0.0.1:9500"); err != nil || got != want {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if peers, err := c.Peers(t.Context()); err != nil || !reflect.DeepEqual(peers, []Peer{want}) {
		t.Errorf("%+v, %v", peers, err)
	}
	_, err := c.AddPeer(t.Context(), "abc")
	wantKind(t, "no address", err, fault.Malformed)

	node.Overlay.Fixed = []string{"fix"}
	wantKind(t, "removed", c.RemovePeer(t.Context(), "abc"), none)
	wantKind(t, "removed twice", c.RemovePeer(t.Context(), "abc"), fault.NotFound)
	wantKind(t, "from the configuration", c.RemovePeer(t.Context(), "fix"), fault.Conflict)
	n := len(node.seen())
	for _, id := range []string{"", ".", ".."} {
		wantKind(t, id, c.RemovePeer(t.Context(), id), fault.Malformed)
	}
	if len(node.seen()) != n {
		t.Error("what cannot be an ID was asked for")
	}
	wantKind(t, "an ID with a slash", c.RemovePeer(t.Context(), "../peers?x"), fault.NotFound)
	if got := node.seen()[n].URL.EscapedPath(); got != "/overlay/peers/..%2Fpeers%3Fx" {
		t.Errorf("asked for %s", got)
	}
}

// The command line and the node share these shapes.
func TestTheShapesOfTheOverlay(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, document := range map[string]any{
		`{"id":"a","addr":"b:1","state":"active","pq":true,"rtt_ms":1.5,"dialed":false,"since":"2026-01-02T03:04:05Z"}`: Peer{
			ID: "a", Addr: "b:1", State: PeerActive, PQ: true, RTT: 1.5, Since: since},
		`{"id":"","addr":"","state":"backoff","pq":false,"rtt_ms":0,"dialed":true,"last_error":"refused","retry_in_ms":250}`: Peer{
			State: PeerBackoff, Dialed: true, LastError: "refused", RetryIn: 250},
		`{"peers":[]}`: PeerList{[]Peer{}},
		`{}`:           FetchRequest{},
		`{"missed":3}`: &Lagged{3},
		`{"id":"b3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262","peers":2,"busy":1}`: Published{b3.Of(nil), 2, 1},
		`{"origin":"o","topic":"t","id":"b3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262","data":"aGk=","seq":1,"ts":2,"signed":true}`: Message{
			"o", "t", b3.Of(nil), []byte("hi"), 1, 2, true},
	} {
		if raw, err := json.Marshal(document); err != nil || string(raw) != want {
			t.Errorf("%s, %v", raw, err)
		}
	}
}

func TestPublish(t *testing.T) {
	node := NewFakeNode()
	c := serve(t, node)
	s := subscribe(t, c, "news")
	for _, data := range [][]byte{nil, []byte("x"), {0, 0xff, '\n', '\r'}, pattern(politeCap + 1), pattern(MaxMessage)} {
		sent, err := c.Publish(t.Context(), "news", data)
		if err != nil || sent.Peers != 1 || sent.Busy != 1 {
			t.Fatalf("%d bytes: %+v, %v", len(data), sent, err)
		}
		got, err := s.Next(t.Context())
		if err != nil || got.ID != sent.ID || !bytes.Equal(got.Data, data) || got.Topic != "news" || got.Origin != fakeOrigin || !got.Signed || got.Seq == 0 || got.TS == 0 {
			t.Fatalf("%d bytes: %v", len(data), err)
		}
	}
	n := len(node.seen())
	_, err := c.Publish(t.Context(), "news", pattern(MaxMessage+1))
	wantKind(t, "too large", err, fault.BodyTooLarge)
	if len(node.seen()) != n {
		t.Error("what is too large was sent")
	}
	node.Before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		writeJSON(w, 200, `{}`)
		return true
	}
	_, err = c.Publish(t.Context(), "news", nil)
	wantKind(t, "no ID", err, fault.UpstreamFailed)
	_, err = c.AddPeer(t.Context(), "a@b")
	wantKind(t, "no peer", err, fault.UpstreamFailed)
	node.Before = func(w http.ResponseWriter, _ *http.Request, _ int) bool {
		_, _ = io.WriteString(w, "<h1>welcome</h1>")
		return true
	}
	_, err = c.Publish(t.Context(), "news", nil)
	wantKind(t, "a page", err, fault.UpstreamFailed)
}

// A topic arrives as it is, whatever it is made of.
func TestTopicsArriveAsTheyAre(t *testing.T) {
	node := NewFakeNode()
	var got string
	node.Before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		got = strings.TrimPrefix(r.URL.Path, "/overlay/publish/")
		return false
	}
	c := serve(t, node)
	publish := func(topic string) error {
		_, err := c.Publish(t.Context(), topic, nil)
		return err
	}
	segment := rapid.OneOf(rapid.SampledFrom([]string{"news", "a b", "50%", "%2F", "what?", "#1", "ü", "...", "a;b", "a+b", `\`, "a:b", "@", "\x00"}), rapid.StringN(1, 8, 20)).
		Filter(func(s string) bool { return !strings.Contains(s, "/") && !unroutable(s) })
	rapid.Check(t, func(r *rapid.T) {
		topic := strings.Join(rapid.SliceOfN(segment, 1, 4).Draw(r, "segments"), "/")
		if err := publish(topic); err != nil || got != topic {
			r.Fatalf("%q arrived as %q, %v", topic, got, err)
		}
	})
	n := len(node.seen())
	for _, topic := range []string{"", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a/."} {
		wantKind(t, topic, publish(topic), fault.Malformed)
		_, err := c.Subscribe(t.Context(), topic)
		wantKind(t, topic, err, fault.Malformed)
	}
	if len(node.seen()) != n {
		t.Error("a topic that cannot travel was sent")
	}
}

// takes reads what it is sent before it goes on.
func takes(then func(*http.Request) (*http.Response, error)) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		_, _ = io.Copy(io.Discard, r.Body)
		return then(r)
	}
}

func accepted(*http.Request) (*http.Response, error) {
	return answer(200, `{"id":"`+b3.Of(nil).String()+`","peers":1,"busy":0}`), nil
}

// A message is sent again only if the node cannot have taken it.
func TestAMessageIsNotSentTwice(t *testing.T) {
	reset := &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}
	for name, try := range map[string]struct {
		answers []func(*http.Request) (*http.Response, error)
		tries   int
		kind    fault.Kind
		doubt   bool
	}{
		"taken":                   {list(takes(accepted)), 1, none, false},
		"refused":                 {list(takes(says(429)), takes(says(503)), takes(accepted)), 3, none, false},
		"refused to the end":      {list(takes(says(429))), 3, fault.RateLimited, false},
		"refused before the body": {list(says(429), takes(accepted)), 2, none, false},
		"broken off before":       {list(fails(reset), takes(accepted)), 2, none, false},
		"broken off after":        {list(takes(fails(reset)), takes(accepted)), 1, fault.Transient, true},
		"no answer":               {list(takes(fails(io.ErrUnexpectedEOF)), takes(accepted)), 1, fault.BrokenPipe, true},
		"too late":                {list(takes(says(504)), takes(accepted)), 1, fault.Timeout, true},
		"wrong":                   {list(takes(says(400)), takes(accepted)), 1, fault.Malformed, false},
		"a bad gateway":           {list(takes(says(502)), takes(accepted)), 1, fault.UpstreamFailed, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := scripted(t, Options{}, try.answers...)
				_, err := c.Publish(t.Context(), "news", []byte("hello"))
				wantKind(t, name, err, try.kind)
				if len(s.at) != try.tries || len(s.corr) != 1 {
					t.Errorf("%d tries under %d corr-ids", len(s.at), len(s.corr))
				}
				if doubt := strings.Contains(fault.NextOf(err), "may have been published"); doubt != try.doubt {
					t.Errorf("the next step of %v is %s", err, fault.NextOf(err))
				}
			})
		})
	}
	// Of one without a body nobody knows how much was sent.
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, Options{}, says(429), fails(reset), accepted)
		_, err := c.Publish(t.Context(), "news", nil)
		wantKind(t, "an empty one", err, fault.Transient)
		if len(s.at) != 2 {
			t.Errorf("%d tries", len(s.at))
		}
	})
}

// Who waits for a node that is busy waits no longer than the caller does.
func TestABusyNodeIsWaitedForWithinTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, Options{}, takes(says(429, "Retry-After", "7")), takes(accepted))
		if _, err := c.Publish(t.Context(), "news", []byte("x")); err != nil || s.at[1] != 7*time.Second {
			t.Errorf("%v, tries at %v", err, s.at)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c, s = scripted(t, Options{}, takes(says(429, "Retry-After", "7")))
		_, err := c.Publish(ctx, "news", []byte("x"))
		wantKind(t, "no time", err, fault.RateLimited)
		if len(s.at) != 1 || time.Since(s.start) != 0 {
			t.Errorf("%d tries, returned after %s", len(s.at), time.Since(s.start))
		}
		c, s = scripted(t, Options{Timeout: 10 * time.Second}, hangs)
		_, err = c.Publish(t.Context(), "news", []byte("x"))
		wantKind(t, "a node that hangs", err, fault.Timeout)
		if time.Since(s.start) != 10*time.Second {
			t.Errorf("it took %s", time.Since(s.start))
		}
	})
}

// After Publish the data is the caller's, whatever the transport still does.
func TestTheDataIsGivenBack(t *testing.T) {
	var body io.Reader
	c, _ := scripted(t, Options{}, func(r *http.Request) (*http.Response, error) {
		body = r.Body
		return says(400)(r)
	})
	_, err := c.Publish(t.Context(), "news", []byte("secret"))
	wantKind(t, "refused", err, fault.Malformed)
	if n, err := body.Read(make([]byte, 10)); n != 0 || err != errOver {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestALargeMessageAsksFirst(t *testing.T) {
	var headers []http.Header
	c, _ := scripted(t, Options{}, func(r *http.Request) (*http.Response, error) {
		headers = append(headers, r.Header)
		return takes(accepted)(r)
	})
	for _, size := range []int{1, politeCap, politeCap + 1} {
		if _, err := c.Publish(t.Context(), "news", pattern(size)); err != nil {
			t.Error(err)
		}
	}
	for i, want := range []string{"", "", "100-continue"} {
		if got := headers[i].Get("Expect"); got != want || headers[i].Get("Request-Timeout") == "" {
			t.Errorf("%d: %v", i, headers[i])
		}
	}
}

func TestFetch(t *testing.T) {
	node := NewFakeNode()
	c := serve(t, node)
	address := node.Overlay.Remote([]byte("far away"))
	_, err := c.Fetch(t.Context(), address, "abc")
	wantKind(t, "an unknown peer", err, fault.NotFound)
	if _, err := c.AddPeer(t.Context(), "abc@10.0.0.1:9500"); err != nil {
		t.Fatal(err)
	}
	object, err := c.Fetch(t.Context(), address, "abc")
	if want := (Object{address, 8, true}); err != nil || object != want {
		t.Errorf("%+v, %v", object, err)
	}
	object, err = c.Fetch(t.Context(), address, "")
	if want := (Object{address, 8, false}); err != nil || object != want {
		t.Errorf("%+v, %v", object, err)
	}
	_, err = c.Fetch(t.Context(), b3.Of([]byte("nowhere")), "")
	wantKind(t, "nobody has it", err, fault.NotFound)
	_, err = c.Fetch(t.Context(), b3.Address{}, "")
	wantKind(t, "no address", err, fault.Malformed)
	_, err = c.Fetch(t.Context(), b3.Of(nil), "")
	wantKind(t, "nobody has it", err, fault.NotFound)
	node.Before = func(w http.ResponseWriter, _ *http.Request, _ int) bool {
		writeJSON(w, 200, `{"address":"`+address.String()+`","size":8}`)
		return true
	}
	_, err = c.Fetch(t.Context(), b3.Of(nil), "")
	wantKind(t, "another object", err, fault.UpstreamFailed)
}

// What a node fetches may be large: it has an hour, or as long as the caller.
func TestAFetchMayTakeLong(t *testing.T) {
	slow := func(r *http.Request) (*http.Response, error) {
		select {
		case <-time.After(50 * time.Minute):
			return answer(201, `{"address":"`+b3.Of(nil).String()+`","size":0}`), nil
		case <-r.Context().Done():
			return hangs(r)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		c, _ := scripted(t, Options{}, slow)
		if object, err := c.Fetch(t.Context(), b3.Of(nil), ""); err != nil || !object.Created {
			t.Errorf("%+v, %v", object, err)
		}
		c, s := scripted(t, Options{}, hangs)
		_, err := c.Fetch(t.Context(), b3.Of(nil), "")
		wantKind(t, "a node that hangs", err, fault.Timeout)
		if time.Since(s.start) != time.Hour {
			t.Errorf("it took %s", time.Since(s.start))
		}
	})
}

// What may be done twice is tried again.
func TestRepeatedCallsOfTheOverlay(t *testing.T) {
	fetched := func(*http.Request) (*http.Response, error) {
		return answer(201, `{"address":"`+b3.Of(nil).String()+`","size":0}`), nil
	}
	added := func(*http.Request) (*http.Response, error) { return answer(200, `{"id":"a"}`), nil }
	broken := takes(fails(io.ErrUnexpectedEOF))
	for name, try := range map[string]struct {
		answers []func(*http.Request) (*http.Response, error)
		call    func(*Client, context.Context) error
	}{
		"peers": {list(fails(io.ErrUnexpectedEOF), says(200)), func(c *Client, ctx context.Context) error { _, err := c.Peers(ctx); return err }},
		"add":   {list(broken, added), func(c *Client, ctx context.Context) error { _, err := c.AddPeer(ctx, "a@b"); return err }},
		"fetch": {list(broken, fetched), func(c *Client, ctx context.Context) error { _, err := c.Fetch(ctx, b3.Of(nil), ""); return err }},
		"remove, and the first try did it": {list(fails(io.ErrUnexpectedEOF), says(404)),
			func(c *Client, ctx context.Context) error { return c.RemovePeer(ctx, "a") }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := scripted(t, Options{}, try.answers...)
				wantKind(t, name, try.call(c, t.Context()), none)
				if len(s.at) != 2 {
					t.Errorf("%d tries", len(s.at))
				}
			})
		})
	}
}
