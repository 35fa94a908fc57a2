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
	"micronode/internal/testkit"
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
	testkit.WantKind(t, err, fault.Malformed, "no address")

	node.Overlay.Fixed = []string{"fix"}
	testkit.WantKind(t, c.RemovePeer(t.Context(), "abc"), none, "removed")
	testkit.WantKind(t, c.RemovePeer(t.Context(), "abc"), fault.NotFound, "removed twice")
	testkit.WantKind(t, c.RemovePeer(t.Context(), "fix"), fault.Conflict, "from the configuration")
	n := len(node.seen())
	for _, id := range []string{"", ".", ".."} {
		testkit.WantKind(t, c.RemovePeer(t.Context(), id), fault.Malformed, id)
	}
	if len(node.seen()) != n {
		t.Error("what cannot be an ID was asked for")
	}
	testkit.WantKind(t, c.RemovePeer(t.Context(), "../peers?x"), fault.NotFound, "an ID with a slash")
	if got := node.seen()[n].URL.EscapedPath(); got != "/overlay/peers/..%2Fpeers%3Fx" {
		t.Errorf("asked for %s", got)
	}
}

// The command line and the node share this JSON.
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
	for _, data := range [][]byte{nil, []byte("x"), {0, 0xff, '\n', '\r'}, pattern(expectContinueMin + 1), pattern(MaxMessage)} {
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
	testkit.WantKind(t, err, fault.BodyTooLarge, "too large")
	if len(node.seen()) != n {
		t.Error("what is too large was sent")
	}
	node.Before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		writeJSON(w, 200, `{}`)
		return true
	}
	_, err = c.Publish(t.Context(), "news", nil)
	testkit.WantKind(t, err, fault.UpstreamFailed, "no ID")
	_, err = c.AddPeer(t.Context(), "a@b")
	testkit.WantKind(t, err, fault.UpstreamFailed, "no peer")
	node.Before = func(w http.ResponseWriter, _ *http.Request, _ int) bool {
		_, _ = io.WriteString(w, "<h1>welcome</h1>")
		return true
	}
	_, err = c.Publish(t.Context(), "news", nil)
	testkit.WantKind(t, err, fault.UpstreamFailed, "a page")
}

// A topic arrives unchanged, whatever its characters.
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
		Filter(func(s string) bool { return !strings.Contains(s, "/") && !isUnroutable(s) })
	rapid.Check(t, func(r *rapid.T) {
		topic := strings.Join(rapid.SliceOfN(segment, 1, 4).Draw(r, "segments"), "/")
		if err := publish(topic); err != nil || got != topic {
			r.Fatalf("%q arrived as %q, %v", topic, got, err)
		}
	})
	n := len(node.seen())
	for _, topic := range []string{"", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a/."} {
		testkit.WantKind(t, publish(topic), fault.Malformed, topic)
		_, err := c.Subscribe(t.Context(), topic)
		testkit.WantKind(t, err, fault.Malformed, topic)
	}
	if len(node.seen()) != n {
		t.Error("a topic that cannot travel was sent")
	}
}

// readingAnswer reads the request body before it continues.
func readingAnswer(then func(*http.Request) (*http.Response, error)) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		_, _ = io.Copy(io.Discard, r.Body)
		return then(r)
	}
}

func accepted(*http.Request) (*http.Response, error) {
	return answer(200, `{"id":"`+b3.Of(nil).String()+`","peers":1,"busy":0}`), nil
}

// A message is sent again only if the node cannot have accepted it.
func TestAMessageIsNotSentTwice(t *testing.T) {
	reset := &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}
	for name, try := range map[string]struct {
		answers []func(*http.Request) (*http.Response, error)
		tries   int
		kind    fault.Kind
		doubt   bool
	}{
		"taken":                   {answerList(readingAnswer(accepted)), 1, none, false},
		"refused":                 {answerList(readingAnswer(statusAnswer(429)), readingAnswer(statusAnswer(503)), readingAnswer(accepted)), 3, none, false},
		"refused to the end":      {answerList(readingAnswer(statusAnswer(429))), 3, fault.RateLimited, false},
		"refused before the body": {answerList(statusAnswer(429), readingAnswer(accepted)), 2, none, false},
		"broken off before":       {answerList(errorAnswer(reset), readingAnswer(accepted)), 2, none, false},
		"broken off after":        {answerList(readingAnswer(errorAnswer(reset)), readingAnswer(accepted)), 1, fault.Transient, true},
		"no answer":               {answerList(readingAnswer(errorAnswer(io.ErrUnexpectedEOF)), readingAnswer(accepted)), 1, fault.BrokenPipe, true},
		"too late":                {answerList(readingAnswer(statusAnswer(504)), readingAnswer(accepted)), 1, fault.Timeout, true},
		"wrong":                   {answerList(readingAnswer(statusAnswer(400)), readingAnswer(accepted)), 1, fault.Malformed, false},
		"a bad gateway":           {answerList(readingAnswer(statusAnswer(502)), readingAnswer(accepted)), 1, fault.UpstreamFailed, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := scripted(t, Options{}, try.answers...)
				_, err := c.Publish(t.Context(), "news", []byte("hello"))
				testkit.WantKind(t, err, try.kind, name)
				if len(s.at) != try.tries || len(s.corr) != 1 {
					t.Errorf("%d tries under %d corr-ids", len(s.at), len(s.corr))
				}
				if doubt := strings.Contains(fault.NextOf(err), "may have been published"); doubt != try.doubt {
					t.Errorf("the next step of %v is %s", err, fault.NextOf(err))
				}
			})
		})
	}
	// If the message has no body, it is unknown how much was sent.
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, Options{}, statusAnswer(429), errorAnswer(reset), accepted)
		_, err := c.Publish(t.Context(), "news", nil)
		testkit.WantKind(t, err, fault.Transient, "an empty one")
		if len(s.at) != 2 {
			t.Errorf("%d tries", len(s.at))
		}
	})
}

// Waiting for a busy node is bounded by the deadline of the caller.
func TestABusyNodeIsWaitedForWithinTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, Options{}, readingAnswer(statusAnswer(429, "Retry-After", "7")), readingAnswer(accepted))
		if _, err := c.Publish(t.Context(), "news", []byte("x")); err != nil || s.at[1] != 7*time.Second {
			t.Errorf("%v, tries at %v", err, s.at)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c, s = scripted(t, Options{}, readingAnswer(statusAnswer(429, "Retry-After", "7")))
		_, err := c.Publish(ctx, "news", []byte("x"))
		testkit.WantKind(t, err, fault.RateLimited, "no time")
		if len(s.at) != 1 || time.Since(s.start) != 0 {
			t.Errorf("%d tries, returned after %s", len(s.at), time.Since(s.start))
		}
		c, s = scripted(t, Options{Timeout: 10 * time.Second}, hangingAnswer)
		_, err = c.Publish(t.Context(), "news", []byte("x"))
		testkit.WantKind(t, err, fault.Timeout, "a node that hangs")
		if time.Since(s.start) != 10*time.Second {
			t.Errorf("it took %s", time.Since(s.start))
		}
	})
}

// After Publish the caller may change the data, whatever the transport still
// does.
func TestPublishReleasesData(t *testing.T) {
	var body io.Reader
	c, _ := scripted(t, Options{}, func(r *http.Request) (*http.Response, error) {
		body = r.Body
		return statusAnswer(400)(r)
	})
	_, err := c.Publish(t.Context(), "news", []byte("secret"))
	testkit.WantKind(t, err, fault.Malformed, "refused")
	if n, err := body.Read(make([]byte, 10)); n != 0 || err != errTryStopped {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestALargeMessageAsksFirst(t *testing.T) {
	var headers []http.Header
	c, _ := scripted(t, Options{}, func(r *http.Request) (*http.Response, error) {
		headers = append(headers, r.Header)
		return readingAnswer(accepted)(r)
	})
	for _, size := range []int{1, expectContinueMin, expectContinueMin + 1} {
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
	testkit.WantKind(t, err, fault.NotFound, "an unknown peer")
	if _, err := c.AddPeer(t.Context(), "abc@10.0.0.1:9500"); err != nil {
		t.Fatal(err)
	}
	object, err := c.Fetch(t.Context(), address, "abc")
	if want := (Object{Address: address, Size: 8, Created: true}); err != nil || object != want {
		t.Errorf("%+v, %v", object, err)
	}
	object, err = c.Fetch(t.Context(), address, "")
	if want := (Object{Address: address, Size: 8, Created: false}); err != nil || object != want {
		t.Errorf("%+v, %v", object, err)
	}
	_, err = c.Fetch(t.Context(), b3.Of([]byte("nowhere")), "")
	testkit.WantKind(t, err, fault.NotFound, "nobody has it")
	_, err = c.Fetch(t.Context(), b3.Address{}, "")
	testkit.WantKind(t, err, fault.Malformed, "no address")
	_, err = c.Fetch(t.Context(), b3.Of(nil), "")
	testkit.WantKind(t, err, fault.NotFound, "nobody has it")
	node.Before = func(w http.ResponseWriter, _ *http.Request, _ int) bool {
		writeJSON(w, 200, `{"address":"`+address.String()+`","size":8}`)
		return true
	}
	_, err = c.Fetch(t.Context(), b3.Of(nil), "")
	testkit.WantKind(t, err, fault.UpstreamFailed, "another object")
}

// A fetched object may be large: the bound is an hour, or the caller's
// deadline.
func TestAFetchMayTakeLong(t *testing.T) {
	slow := func(r *http.Request) (*http.Response, error) {
		select {
		case <-time.After(50 * time.Minute):
			return answer(201, `{"address":"`+b3.Of(nil).String()+`","size":0}`), nil
		case <-r.Context().Done():
			return hangingAnswer(r)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		c, _ := scripted(t, Options{}, slow)
		if object, err := c.Fetch(t.Context(), b3.Of(nil), ""); err != nil || !object.Created {
			t.Errorf("%+v, %v", object, err)
		}
		c, s := scripted(t, Options{}, hangingAnswer)
		_, err := c.Fetch(t.Context(), b3.Of(nil), "")
		testkit.WantKind(t, err, fault.Timeout, "a node that hangs")
		if time.Since(s.start) != time.Hour {
			t.Errorf("it took %s", time.Since(s.start))
		}
	})
}

// Calls that are safe to repeat are retried.
func TestRepeatedCallsOfTheOverlay(t *testing.T) {
	fetched := func(*http.Request) (*http.Response, error) {
		return answer(201, `{"address":"`+b3.Of(nil).String()+`","size":0}`), nil
	}
	added := func(*http.Request) (*http.Response, error) { return answer(200, `{"id":"a"}`), nil }
	broken := readingAnswer(errorAnswer(io.ErrUnexpectedEOF))
	for name, try := range map[string]struct {
		answers []func(*http.Request) (*http.Response, error)
		call    func(*Client, context.Context) error
	}{
		"peers": {answerList(errorAnswer(io.ErrUnexpectedEOF), statusAnswer(200)), func(c *Client, ctx context.Context) error { _, err := c.Peers(ctx); return err }},
		"add":   {answerList(broken, added), func(c *Client, ctx context.Context) error { _, err := c.AddPeer(ctx, "a@b"); return err }},
		"fetch": {answerList(broken, fetched), func(c *Client, ctx context.Context) error { _, err := c.Fetch(ctx, b3.Of(nil), ""); return err }},
		"remove, and the first try did it": {answerList(errorAnswer(io.ErrUnexpectedEOF), statusAnswer(404)),
			func(c *Client, ctx context.Context) error { return c.RemovePeer(ctx, "a") }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := scripted(t, Options{}, try.answers...)
				testkit.WantKind(t, try.call(c, t.Context()), none, name)
				if len(s.at) != 2 {
					t.Errorf("%d tries", len(s.at))
				}
			})
		})
	}
}
