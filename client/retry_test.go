package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/testkit"
)

// roundTripper is a fake of the network.
type roundTripper func(*http.Request) (*http.Response, error)

func (rt roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return rt(r) }

func answer(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}},
		ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body))}
}

// scriptedTransport answers one try after another, and records when each
// arrived.
type scriptedTransport struct {
	answers []func(*http.Request) (*http.Response, error)
	at      []time.Duration
	corr    map[string]bool
	start   time.Time
}

func (s *scriptedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	s.at = append(s.at, time.Since(s.start))
	s.corr[r.Header.Get("X-Corr-ID")] = true
	n := min(len(s.at), len(s.answers))
	answer, err := s.answers[n-1](r)
	if answer != nil {
		answer.Request = r
	}
	return answer, err
}

// scripted makes a client of a script. Call it in a bubble.
func scripted(t *testing.T, o Options, answers ...func(*http.Request) (*http.Response, error)) (*Client, *scriptedTransport) {
	s := &scriptedTransport{answers: answers, corr: map[string]bool{}, start: time.Now()}
	o.URL, o.HTTPClient = "http://node.example", &http.Client{Transport: s}
	return dial(t, o), s
}

func statusAnswer(status int, header ...string) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) {
		a := answer(status, "{}")
		for i := 0; i < len(header); i += 2 {
			a.Header.Set(header[i], header[i+1])
		}
		return a, nil
	}
}

func errorAnswer(err error) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

// hangingAnswer answers nothing until the request is cancelled.
func hangingAnswer(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestRetries(t *testing.T) {
	reset := &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}
	ok, busy := statusAnswer(200), statusAnswer(429)
	for name, try := range map[string]struct {
		answers []func(*http.Request) (*http.Response, error)
		call    func(*Client, context.Context) error
		tries   int
		kind    fault.Kind
	}{
		"it works":               {answerList(ok), version, 1, none},
		"it works in the end":    {answerList(busy, errorAnswer(reset), ok), version, 3, none},
		"three times and over":   {answerList(busy), version, 3, fault.RateLimited},
		"503":                    {answerList(statusAnswer(503), ok), version, 2, none},
		"504":                    {answerList(statusAnswer(504), ok), version, 2, none},
		"502":                    {answerList(statusAnswer(502), ok), version, 2, none},
		"stays wrong":            {answerList(statusAnswer(400), ok), version, 1, fault.Malformed},
		"is not there":           {answerList(statusAnswer(404), ok), version, 1, fault.NotFound},
		"is a bug":               {answerList(statusAnswer(500), ok), version, 1, fault.Internal},
		"Stat":                   {answerList(busy, ok), stat, 2, none},
		"Delete":                 {answerList(busy, statusAnswer(204)), remove, 2, none},
		"a token is minted once": {answerList(busy, ok), mint, 1, fault.RateLimited},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := scripted(t, Options{}, try.answers...)
				testkit.WantKind(t, try.call(c, t.Context()), try.kind, name)
				if len(s.at) != try.tries || len(s.corr) != 1 {
					t.Errorf("%d tries under %d corr-ids, want %d under one", len(s.at), len(s.corr), try.tries)
				}
				wantPauses(t, s.at)
			})
		})
	}
}

func answerList(answers ...func(*http.Request) (*http.Response, error)) []func(*http.Request) (*http.Response, error) {
	return answers
}

func version(c *Client, ctx context.Context) error { _, err := c.Version(ctx); return err }
func stat(c *Client, ctx context.Context) error    { _, err := c.Stat(ctx, b3.Of(nil)); return err }
func remove(c *Client, ctx context.Context) error  { return c.Delete(ctx, b3.Of(nil)) }
func mint(c *Client, ctx context.Context) error {
	_, err := c.MintToken(ctx, MintRequest{Scopes: []string{"admin"}, TTL: time.Hour})
	return err
}

// wantPauses fails unless each pause is within its bounds.
func wantPauses(t *testing.T, at []time.Duration) {
	t.Helper()
	for i := 1; i < len(at); i++ {
		shortest := 50 * time.Millisecond << (i - 1)
		if pause := at[i] - at[i-1]; pause < shortest || pause > 2*shortest {
			t.Errorf("pause %d is %s, want %s to %s", i, pause, shortest, 2*shortest)
		}
	}
}

// The pauses grow from First to Cap and have jitter.
func TestPauses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(t, "first"))
		most := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "cap"))
		r, err := Retry{First: first, Cap: most}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		n := rapid.IntRange(1, 100).Draw(t, "n")
		low, high := first, 2*first
		for i := 1; i < n && low < most; i++ {
			low, high = 2*low, 2*high
		}
		if pause := r.backoff(n); pause < min(low, most) || pause > min(high, most) {
			t.Fatalf("pause %d is %s, want %s to %s", n, pause, min(low, most), min(high, most))
		}
	})
	seen := map[time.Duration]bool{}
	for range 100 {
		r, _ := Retry{}.withDefaults()
		seen[r.backoff(1)] = true
	}
	if len(seen) < 10 {
		t.Errorf("a hundred pauses are only %d different ones", len(seen))
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, Options{}, statusAnswer(429, "Retry-After", "7"), statusAnswer(200))
		if _, err := c.Version(t.Context()); err != nil || s.at[1] != 7*time.Second {
			t.Errorf("%v, tries at %v", err, s.at)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		when := time.Now().Add(3 * time.Second).UTC().Format(http.TimeFormat)
		c, s := scripted(t, Options{}, statusAnswer(503, "Retry-After", when), statusAnswer(200))
		if _, err := c.Version(t.Context()); err != nil || s.at[1] != 3*time.Second {
			t.Errorf("%v, tries at %v", err, s.at)
		}
	})
}

// What a transport says of an error reaches the caller, the pause included: a
// node that calls another of its parts passes it on as Retry-After. Our own
// tries do not wait for it, because no node has answered.
func TestTheTransportsRetryAfterIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := &fault.Error{Op: "part", Kind: fault.UpstreamFailed, Detail: "the part broke off", Next: "Retry in a moment.", RetryAfter: 9 * time.Second}
		c, s := scripted(t, Options{}, errorAnswer(broken))
		_, err := c.Version(t.Context())
		if fault.RetryAfterOf(err) != 9*time.Second || fault.DetailOf(err) != broken.Detail {
			t.Errorf("%v, to be retried after %s", err, fault.RetryAfterOf(err))
		}
		if len(s.at) != 3 || s.at[2] >= time.Second {
			t.Errorf("tries at %v", s.at)
		}
	})
}

// A try that would come after the deadline is not waited for, and the error
// has a RetryAfter.
func TestAPauseDoesNotOutliveTheDeadline(t *testing.T) {
	for name, o := range map[string]struct {
		deadline, timeout time.Duration
		call              func(*Client, context.Context) error
	}{
		"the caller's deadline":            {5 * time.Second, 0, version},
		"exactly the deadline":             {7 * time.Second, 0, version},
		"the client's timeout":             {time.Hour, 6 * time.Second, version},
		"a transfer without any deadline":  {0, 6 * time.Second, get},
		"a transfer with a short deadline": {5 * time.Second, 0, put},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := scripted(t, Options{Timeout: o.timeout}, statusAnswer(429, "Retry-After", "7"), statusAnswer(200))
				ctx := t.Context()
				if o.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, o.deadline)
					defer cancel()
				}
				err := o.call(c, ctx)
				testkit.WantKind(t, err, fault.RateLimited, name)
				if len(s.at) != 1 || time.Since(s.start) != 0 || fault.RetryAfterOf(err) != 7*time.Second {
					t.Errorf("%d tries, returned after %s with %s to wait", len(s.at), time.Since(s.start), fault.RetryAfterOf(err))
				}
			})
		})
	}
}

func get(c *Client, ctx context.Context) error {
	r, err := c.Get(ctx, b3.Of([]byte("{}")), GetOptions{})
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.ReadAll(r)
	return err
}

func put(c *Client, ctx context.Context) error {
	_, err := c.Put(ctx, strings.NewReader("{}"), PutOptions{})
	return err
}

// A cancellation during a pause returns at once, with the error of the last
// try.
func TestCanceledInAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := scripted(t, Options{}, statusAnswer(429, "Retry-After", "20"))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		_, err := c.Version(ctx)
		testkit.WantKind(t, err, fault.Canceled, "canceled")
		if time.Since(start) != time.Second || !errors.Is(err, context.Canceled) || !errors.Is(err, fault.RateLimited) || CorrID(err) == "" {
			t.Errorf("%v after %s", err, time.Since(start))
		}
	})
}

func TestOneTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, Options{Retry: Retry{Tries: 1}}, statusAnswer(429), statusAnswer(200))
		testkit.WantKind(t, version(c, t.Context()), fault.RateLimited, "one try")
		if len(s.at) != 1 {
			t.Errorf("%d tries", len(s.at))
		}
	})
}

// A server that hangs delays a small call by the timeout, and a transfer by
// the timeout at each of its tries.
func TestAServerThatHangs(t *testing.T) {
	for name, try := range map[string]struct {
		call  func(*Client, context.Context) error
		after time.Duration
		tries int
	}{
		"a small call": {version, 10 * time.Second, 1},
		"Get":          {get, 30 * time.Second, 3},
		"Put":          {put, 30 * time.Second, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := scripted(t, Options{Timeout: 10 * time.Second}, hangingAnswer)
				err := try.call(c, t.Context())
				testkit.WantKind(t, err, fault.Timeout, name)
				if took := time.Since(s.start).Truncate(time.Second); took != try.after || len(s.at) != try.tries || CorrID(err) == "" {
					t.Errorf("%v after %s and %d tries", err, took, len(s.at))
				}
			})
			synctest.Test(t, func(t *testing.T) {
				c, s := scripted(t, Options{}, hangingAnswer)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				err := try.call(c, ctx)
				testkit.WantKind(t, err, fault.Timeout, name)
				if time.Since(s.start) != time.Second || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("with a deadline: %v after %s", err, time.Since(s.start))
				}
			})
			synctest.Test(t, func(t *testing.T) {
				c, s := scripted(t, Options{}, hangingAnswer)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				testkit.WantKind(t, try.call(c, ctx), fault.Canceled, name)
				if time.Since(s.start) != time.Second || len(s.at) != 1 {
					t.Errorf("canceled: after %s and %d tries", time.Since(s.start), len(s.at))
				}
			})
		})
	}
}

// A small call sends its timeout to the node.
func TestRequestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []string
		note := func(r *http.Request) (*http.Response, error) {
			sent = append(sent, r.Header.Get("Request-Timeout"))
			return statusAnswer(429, "Retry-After", "1")(r)
		}
		c, _ := scripted(t, Options{Timeout: 20 * time.Second}, note)
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		_ = version(c, ctx)
		_ = version(c, t.Context())
		_ = get(c, ctx)
		if got := fmt.Sprint(sent); got != "[1.500 0.500 20.000 19.000 18.000 ]" {
			t.Errorf("sent %s", got)
		}
	})
}

// A slow source and a slow reader are not stalls of the node: the clock runs
// only while the client waits for the node.
func TestOurOwnSlownessIsNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowReader{pause: time.Minute, left: "slowly"}
		takes := func(r *http.Request) (*http.Response, error) {
			data, err := io.ReadAll(r.Body)
			if err = errors.Join(err, r.Context().Err()); err != nil {
				return nil, err
			}
			return answer(201, fmt.Sprintf(`{"address":%q,"size":%d}`, b3.Of(data), len(data))), nil
		}
		c, s := scripted(t, Options{Timeout: 10 * time.Second}, takes)
		object, err := c.Put(t.Context(), slow, PutOptions{})
		if err != nil || object.Address != b3.Of([]byte("slowly")) || len(s.at) != 1 {
			t.Errorf("%+v, %v after %d tries", object, err, len(s.at))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		data := "read one letter a minute"
		c, s := scripted(t, Options{Timeout: 10 * time.Second}, func(r *http.Request) (*http.Response, error) {
			a := answer(200, data)
			a.Body = &ctxBody{strings.NewReader(data), r.Context()}
			return a, nil
		})
		r, err := c.Get(t.Context(), b3.Of([]byte(data)), GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		var got strings.Builder
		for char := make([]byte, 1); err == nil; {
			var n int
			time.Sleep(time.Minute)
			n, err = r.Read(char)
			got.Write(char[:n])
		}
		if err != io.EOF || got.String() != data || len(s.at) != 1 {
			t.Errorf("%q, %v after %d tries", got.String(), err, len(s.at))
		}
	})
}

// A try leaves nothing behind once its answer is closed.
func TestATryEnds(t *testing.T) {
	var tries []context.Context
	c, _ := scripted(t, Options{}, func(r *http.Request) (*http.Response, error) {
		tries = append(tries, r.Context())
		return answer(200, "{}"), nil
	})
	r, err := c.Get(t.Context(), b3.Of([]byte("{}")), GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if tries[0].Err() != nil {
		t.Error("it ends before it was read")
	}
	_ = r.Close()
	_, _ = c.Version(t.Context())
	_, _ = c.Stat(t.Context(), b3.Of(nil))
	for i, ctx := range tries {
		if ctx.Err() == nil {
			t.Errorf("try %d goes on for ever", i)
		}
	}
}

// ctxBody is a body that fails when its request is cancelled.
type ctxBody struct {
	*strings.Reader
	ctx context.Context
}

func (c *ctxBody) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, c.ctx.Err()
	}
	return c.Reader.Read(p)
}

func (c *ctxBody) Close() error { return nil }

// slowReader returns one byte after each pause.
type slowReader struct {
	pause time.Duration
	left  string
}

func (s *slowReader) Read(p []byte) (int, error) {
	if s.left == "" {
		return 0, io.EOF
	}
	time.Sleep(s.pause)
	n := copy(p[:1], s.left)
	s.left = s.left[n:]
	return n, nil
}

// A body that stops in the middle is a stall, and the reader resumes on
// another connection.
func TestABodyThatStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := "0123456789"
		stalls := func(r *http.Request) (*http.Response, error) {
			a := answer(200, data)
			a.Body = io.NopCloser(io.MultiReader(strings.NewReader(data[:4]), stalledReader{r.Context()}))
			return a, nil
		}
		goesOn := func(r *http.Request) (*http.Response, error) {
			if r.Header.Get("Range") != "bytes=4-9" {
				t.Errorf("Range %q", r.Header.Get("Range"))
			}
			a := answer(206, data[4:])
			a.Header.Set("Content-Range", "bytes 4-9/10")
			return a, nil
		}
		c, s := scripted(t, Options{Timeout: 10 * time.Second}, stalls, goesOn)
		got, err := readAll(t, c, b3.Of([]byte(data)), GetOptions{})
		if string(got) != data || err != nil || len(s.at) != 2 || s.at[1] < 10*time.Second || s.at[1] > 11*time.Second {
			t.Errorf("%q, %v, tries at %v", got, err, s.at)
		}
	})
}

// stalledReader returns nothing until its request is cancelled.
type stalledReader struct{ ctx context.Context }

func (s stalledReader) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

// The same over a connection and the real transport.
func TestAConnectionThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var servers []net.Conn
		transport := newTransport(func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			servers = append(servers, theirs)
			go func() { _, _ = io.Copy(io.Discard, theirs) }() // it reads, and never answers
			return ours, nil
		})
		c := dial(t, Options{URL: "http://node.example", Timeout: 5 * time.Second, HTTPClient: &http.Client{Transport: transport}})
		for name, call := range map[string]func(*Client, context.Context) error{"version": version, "get": get, "put": put} {
			err := call(c, t.Context())
			testkit.WantKind(t, err, fault.Timeout, name)
		}
		transport.CloseIdleConnections()
		for _, server := range servers {
			_ = server.Close()
		}
		synctest.Wait()
	})
}
