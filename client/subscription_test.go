package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/testkit"
)

// subscribe subscribes for as long as the test runs.
func subscribe(t testing.TB, c *Client, topic string) *Subscription {
	t.Helper()
	s, err := c.Subscribe(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// stream answers with events.
func stream(body func(ctx context.Context) io.Reader) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		a := answer(200, "")
		a.Header.Set("Content-Type", "text/event-stream; charset=utf-8")
		a.ContentLength, a.Body = -1, io.NopCloser(body(r.Context()))
		return a, nil
	}
}

// text is a stream that ends after a text.
func text(parts ...string) func(*http.Request) (*http.Response, error) {
	return stream(func(context.Context) io.Reader { return strings.NewReader(strings.Join(parts, "")) })
}

// hello is a message as a node sends it.
var hello = "event: message\nid: " + b3.Of(nil).String() + "\ndata: {\"origin\":\"abc\",\"topic\":\"news\",\"id\":\"" + b3.Of(nil).String() +
	"\",\"data\":\"aGVsbG8=\",\"seq\":7,\"ts\":1700000000000,\"signed\":true,\"added\":\"later\"}\n\n"

func wantHello(t testing.TB, s *Subscription, ctx context.Context) {
	t.Helper()
	if got, err := s.Next(ctx); err != nil || string(got.Data) != "hello" || got.Seq != 7 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestWhatASubscriptionReads(t *testing.T) {
	c, _ := scripted(t, Options{}, text(":\n\n", hello, "event: weather\ndata: sunny\n\n", ": heartbeat\n\n",
		"event: lagged\ndata: {\"missed\":3}\n\n", hello, "data: {\"id\":\"", b3.Of(nil).String(), "\"}\r\n\r\n", "event: message\ndata: {\"cut"))
	s := subscribe(t, c, "news")
	wantHello(t, s, t.Context())
	_, err := s.Next(t.Context())
	lag, ok := errors.AsType[*Lagged](err)
	if !ok || lag.Missed != 3 || !errors.Is(err, fault.Lagging) || fault.KindOf(err) != fault.Lagging || !strings.Contains(err.Error(), "3 messages") {
		t.Errorf("%v", err)
	}
	wantHello(t, s, t.Context())
	if got, err := s.Next(t.Context()); err != nil || len(got.Data) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	for range 2 { // the error stays
		_, err = s.Next(t.Context())
		testkit.WantKind(t, err, fault.BrokenPipe, "the end")
		if !strings.Contains(err.Error(), "heartbeat") || CorrID(err) == "" || fault.OpOf(err) != "client.next" {
			t.Errorf("%v", err)
		}
	}
	_ = s.Close()
	if _, again := s.Next(t.Context()); again != err {
		t.Errorf("after Close: %v", again)
	}
}

func TestHowASubscriptionEnds(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		kind fault.Kind
		says string
	}{
		"the node goes":          {": draining\n\n", fault.BrokenPipe, "ended the stream: draining"},
		"without a word":         {"", fault.BrokenPipe, "broke off"},
		"with a reason":          {"event: error\ndata: {\"code\":\"NotReady\",\"detail\":\"the overlay is\\u001b[2J down\",\"next\":\"Wait.\"}\n\n", fault.NotReady, "the overlay is [2J down"},
		"with a new reason":      {"event: error\ndata: {\"code\":\"Tired\",\"detail\":\"x\"}\n\n", fault.UpstreamFailed, "x"},
		"with no reason":         {"event: error\ndata: boom\n\n", fault.UpstreamFailed, "does not parse"},
		"no JSON":                {"data: hello\n\n", fault.UpstreamFailed, "does not parse"},
		"no ID":                  {"data: {}\n\n", fault.UpstreamFailed, "without an ID"},
		"no number":              {"event: lagged\ndata: many\n\n", fault.UpstreamFailed, "does not parse"},
		"a line without end":     {"data: " + strings.Repeat("x", maxEvent), fault.UpstreamFailed, "does not end"},
		"an event without end":   {strings.Repeat("data: "+strings.Repeat("x", 1000)+"\n", maxEvent/1000), fault.UpstreamFailed, "does not end"},
		"a comment without end":  {":" + strings.Repeat(" ", maxEvent) + "\n\n", fault.UpstreamFailed, "does not end"},
		"a comment that is long": {": " + strings.Repeat("x", maxText+1) + "\n\n", fault.BrokenPipe, "broke off"},
	} {
		t.Run(name, func(t *testing.T) {
			node, _ := scripted(t, Options{}, text(c.body))
			s := subscribe(t, node, "news")
			_, err := s.Next(t.Context())
			testkit.WantKind(t, err, c.kind, name)
			if !strings.Contains(fmt.Sprint(err), c.says) || CorrID(err) == "" {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestWhatIsNoStream(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(*http.Request) (*http.Response, error)
		kind   fault.Kind
	}{
		"a page":     {statusAnswer(200, "Content-Type", "text/html"), fault.UpstreamFailed},
		"no content": {statusAnswer(204, "Content-Type", "text/event-stream"), fault.UpstreamFailed},
		"a refusal":  {statusAnswer(403), fault.Forbidden},
		"an echo":    {statusAnswer(200, "Content-Type", "mn1_hush"), fault.UpstreamFailed},
	} {
		client, _ := scripted(t, Options{Token: "mn1_hush"}, c.answer)
		_, err := client.Subscribe(t.Context(), "news")
		testkit.WantKind(t, err, c.kind, name)
		if strings.Contains(err.Error(), "hush") {
			t.Errorf("the token is in %v", err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, Options{}, statusAnswer(503), errorAnswer(io.ErrUnexpectedEOF), text(hello))
		wantHello(t, subscribe(t, c, "news"), t.Context())
		if len(s.at) != 3 {
			t.Errorf("%d tries", len(s.at))
		}
	})
}

// heartbeatReader is a stream with a comment after each pause, n times, and
// nothing after that.
type heartbeatReader struct {
	ctx   context.Context
	pause time.Duration
	n     int
}

func (h *heartbeatReader) Read(p []byte) (int, error) {
	if h.n--; h.n < 0 {
		return stalledReader{h.ctx}.Read(p)
	}
	select {
	case <-time.After(h.pause):
		return copy(p, ":\n\n"), nil
	case <-h.ctx.Done():
		return 0, h.ctx.Err()
	}
}

// Heartbeats keep a subscription open; three missing ones end it.
func TestHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, Options{}, stream(func(ctx context.Context) io.Reader { return &heartbeatReader{ctx, 44 * time.Second, 1000} }))
		_, err := subscribe(t, c, "news").Next(t.Context())
		testkit.WantKind(t, err, fault.Timeout, "silence")
		if took, want := time.Since(s.start), 1000*44*time.Second+45*time.Second; took != want || !strings.Contains(err.Error(), "45s") {
			t.Errorf("%v after %s, not %s", err, took, want)
		}
	})
	// The program's own time between two calls of Next does not count as
	// silence.
	synctest.Test(t, func(t *testing.T) {
		c, _ := scripted(t, Options{}, stream(func(ctx context.Context) io.Reader {
			return &ctxBody{strings.NewReader(strings.Repeat(hello, 500)), ctx}
		}))
		s := subscribe(t, c, "news")
		for range 500 {
			wantHello(t, s, t.Context())
			time.Sleep(time.Minute)
		}
	})
}

func TestWhoGivesUpWaiting(t *testing.T) {
	quiet := stream(func(ctx context.Context) io.Reader {
		return io.MultiReader(strings.NewReader(hello), stalledReader{ctx})
	})
	synctest.Test(t, func(t *testing.T) {
		c, _ := scripted(t, Options{}, quiet)
		s := subscribe(t, c, "news")
		over, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.Next(over)
		testkit.WantKind(t, err, fault.Canceled, "before")
		wantHello(t, s, t.Context()) // nothing was lost by that
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err = s.Next(short)
		testkit.WantKind(t, err, fault.Timeout, "meanwhile")
		if time.Since(start) != time.Second || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		if _, again := s.Next(t.Context()); again != err {
			t.Errorf("it goes on with %v", again)
		}
	})
	synctest.Test(t, func(t *testing.T) { // the context of the subscription
		c, _ := scripted(t, Options{}, quiet)
		ctx, cancel := context.WithCancel(t.Context())
		s, err := c.Subscribe(ctx, "news")
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		wantHello(t, s, context.Background())
		time.AfterFunc(time.Second, cancel)
		_, err = s.Next(t.Context())
		testkit.WantKind(t, err, fault.Canceled, "the whole")
		if !strings.Contains(err.Error(), "cancelled while waiting for node.example") {
			t.Error(err)
		}
	})
	c, _ := scripted(t, Options{}, quiet)
	s := subscribe(t, c, "news")
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	_, err := s.Next(t.Context())
	testkit.WantKind(t, err, fault.Canceled, "closed")
}

// cancellingReader returns a text, and cancels a context before it returns.
type cancellingReader struct {
	io.Reader
	cancel context.CancelFunc
}

func (c cancellingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.cancel()
	return n, err
}

// A message that arrives together with a cancellation is not lost.
func TestAMessageJustInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c, _ := scripted(t, Options{}, stream(func(try context.Context) io.Reader {
			return cancellingReader{io.MultiReader(strings.NewReader(hello), stalledReader{try}), cancel}
		}))
		s := subscribe(t, c, "news")
		wantHello(t, s, ctx)
		_, err := s.Next(t.Context())
		testkit.WantKind(t, err, fault.Canceled, "after that")
	})
}

// A subscription leaves nothing behind.
func TestASubscriptionIsGivenUp(t *testing.T) {
	node := NewFakeNode()
	left := make(chan struct{})
	node.Overlay.Left = func() { close(left) }
	s := subscribe(t, serve(t, node), "news")
	_ = s.Close()
	<-left
}

// Events are decoded unchanged, however the stream is split.
func TestEventsComeOutAsTheyWentIn(t *testing.T) {
	line := rapid.StringMatching(`[ -~äö]{0,40}`)
	rapid.Check(t, func(t *rapid.T) {
		ends := rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "line end")
		var sent []event
		var raw strings.Builder
		for range rapid.IntRange(0, 8).Draw(t, "events") {
			for _, noise := range rapid.SliceOfN(rapid.SampledFrom([]string{":", ": x", "id: 1", "retry: 5", "unknown", "", "event: ghost" + ends}), 0, 3).Draw(t, "noise") {
				raw.WriteString(noise + ends)
			}
			one := event{name: rapid.StringMatching(`[a-z]{0,8}`).Draw(t, "name")}
			lines := rapid.SliceOfN(line, 1, 4).Draw(t, "data")
			one.data = []byte(strings.Join(lines, "\n"))
			sent = append(sent, one)
			if one.name != "" {
				raw.WriteString("event: " + one.name + ends)
			}
			for _, text := range lines {
				raw.WriteString("data: " + text + ends)
			}
			raw.WriteString(ends)
		}
		var in io.Reader = strings.NewReader(raw.String())
		if rapid.Bool().Draw(t, "byte by byte") {
			in = iotest.OneByteReader(in)
		}
		r := newEventReader(in)
		for _, want := range sent {
			if got, err := r.next(); err != nil || got.name != want.name || !bytes.Equal(got.data, want.data) {
				t.Fatalf("%q %q, %v; want %q %q", got.name, got.data, err, want.name, want.data)
			}
		}
		if got, err := r.next(); err != io.EOF {
			t.Fatalf("%v, %v", got, err)
		}
	})
	rapid.Check(t, func(t *rapid.T) { // any input ends
		r := newEventReader(bytes.NewReader(rapid.SliceOf(rapid.SampledFrom([]byte("data: \r\nevent:x\x00\xff"))).Draw(t, "anything")))
		for {
			if _, err := r.next(); err != nil {
				return
			}
		}
	})
}
