package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"micronode/fault"
	"micronode/internal/corr"
	"micronode/internal/testkit"
)

// Every kind of the table survives the round trip.
func TestProblemsKeepTheirKind(t *testing.T) {
	for _, kind := range fault.Kinds() {
		node := NewFakeNode()
		node.Before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
			w.Header().Set("Retry-After", "40")
			refuse(w, r, kind, "in detail")
			return true
		}
		c := serve(t, node)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // less than Retry-After
		_, err := c.Version(ctx)
		cancel()
		own, ok := errors.AsType[*fault.Error](err)
		if !ok || own.Kind != kind || own.Op != "fake.op" || own.Detail != "in detail" || own.Next != "Do as the fake says." || own.RetryAfter != 40*time.Second {
			t.Errorf("%v became %#v", kind, err)
		}
		if id := node.seen()[0].Header.Get("X-Corr-ID"); CorrID(err) != id || !strings.Contains(err.Error(), id) {
			t.Errorf("%v: corr-id %q of %v, want %q", kind, CorrID(err), err, id)
		}
		if len(node.seen()) != 1 {
			t.Errorf("%v was tried %d times", kind, len(node.seen()))
		}
	}
}

// A node that drains says so, and is not asked again.
func TestDraining(t *testing.T) {
	node := NewFakeNode()
	node.Before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		w.Header().Set("Retry-After", "1")
		refuse(w, r, fault.Canceled, "draining")
		return true
	}
	c := serve(t, node)
	_, err := c.Put(t.Context(), strings.NewReader("late"), PutOptions{})
	testkit.WantKind(t, err, fault.Canceled, "draining")
	if errors.Is(err, context.Canceled) || fault.RetryAfterOf(err) != time.Second || len(node.seen()) != 1 {
		t.Errorf("%v after %d tries", err, len(node.seen()))
	}
}

// An answer that is not a problem document is classified by its status.
func TestKindsByStatus(t *testing.T) {
	for status, kind := range map[int]fault.Kind{
		400: fault.Malformed, 401: fault.Unauthorized, 403: fault.Forbidden, 404: fault.NotFound, 405: fault.MethodNotAllowed,
		407: fault.Unauthorized, 408: fault.RequestTimeout, 409: fault.Conflict, 410: fault.Expired, 411: fault.LengthRequired, 412: fault.Conflict,
		413: fault.BodyTooLarge, 415: fault.UnsupportedMediaType, 416: fault.InvalidRange, 418: fault.Malformed, 429: fault.RateLimited, 500: fault.Internal,
		501: fault.Internal, 502: fault.UpstreamFailed, 503: fault.NotReady, 504: fault.Timeout, 507: fault.StoreFull,
		304: fault.RejectPolicy, 199: fault.UpstreamFailed,
	} {
		for what, body := range map[string][2]string{
			"a page":                 {"text/html", "<h1>sorry</h1>"},
			"nothing":                {"", ""},
			"a broken problem":       {"application/problem+json", `{"code":`},
			"a problem of others":    {"application/problem+json; charset=utf-8", `{"title":"sorry","status":418}`},
			"a problem from later":   {"application/problem+json", `{"code":"Enchanted","retryable":true}`},
			"a problem of no shape":  {"application/problem+json", `["code"]`},
			"a problem that is JSON": {"application/json", `{"code":"StoreFull"}`},
		} {
			a := answer(status, body[1])
			a.Header.Set("Content-Type", body[0])
			err := testCall(t).responseError(a)
			testkit.WantKind(t, err, kind, what)
			if CorrID(err) != "our-own-id" {
				t.Errorf("%s: corr-id %q", what, CorrID(err))
			}
		}
	}
	err := testCall(t).responseError(answer(404, ""))
	if err.Error() != "client.test: node.example answered 404 Not Found: HTTP 404, corr_id our-own-id" {
		t.Error(err)
	}
	if CorrID(nil) != "" || CorrID(fault.Busy) != "" {
		t.Error("an error of nobody's call has a corr-id")
	}
	if text := (&callCause{corr: "abcdefgh"}).Error(); text != "corr_id abcdefgh" {
		t.Error(text)
	}
}

// A long detail is truncated, between two characters.
func TestLongDetails(t *testing.T) {
	raw, _ := json.Marshal(map[string]string{"code": "Busy", "detail": strings.Repeat("é", 20_000)})
	a := answer(429, string(raw))
	a.Header.Set("Content-Type", "application/problem+json")
	err := testCall(t).responseError(a)
	if want := strings.Repeat("é", maxText/2) + "…"; err.Kind != fault.Busy || err.Detail != want {
		t.Errorf("%v: %d bytes", err.Kind, len(err.Detail))
	}
}

// testCall is a call that is not sent.
func testCall(t testing.TB) *call {
	c := dial(t, Options{URL: "https://node.example", Token: token})
	return c.newCall(WithCorrID(t.Context(), "our-own-id"), "client.test", http.MethodGet, "/")
}

func TestRetryAfterHeader(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": 0, "0": 0, "3": 3 * time.Second, "-3": 0, "1.5": 0, "soon": 0, "4294967295": maxRetryAfter, "99999999999999999999": 0,
		"Mon, 02 Jan 2006 15:04:05 GMT": 0, "Fri, 31 Dec 9999 23:59:59 GMT": maxRetryAfter,
	} {
		if got := retryAfter(http.Header{"Retry-After": {text}}); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
}

// Errors of the network, and their kinds.
func TestKindsOfTheNetwork(t *testing.T) {
	for _, try := range []struct {
		err  error
		kind fault.Kind
	}{
		{syscall.ECONNREFUSED, fault.NotReady},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, fault.NoRoute},
		{syscall.ENETUNREACH, fault.NoRoute},
		{syscall.EHOSTUNREACH, fault.NoRoute},
		{http.ErrSchemeMismatch, fault.Malformed},
		{io.EOF, fault.BrokenPipe},
		{io.ErrUnexpectedEOF, fault.BrokenPipe},
		{syscall.ECONNRESET, fault.BrokenPipe},
		{syscall.ETIMEDOUT, fault.Timeout},
		{errors.New("malformed HTTP response"), fault.Transient},
	} {
		err := testCall(t).tryError(t.Context(), t.Context(), &net.OpError{Op: "dial", Err: try.err})
		testkit.WantKind(t, err, try.kind, try.err.Error())
		if !errors.Is(err, try.err) || CorrID(err) != "our-own-id" {
			t.Errorf("%v hides %v", err, try.err)
		}
	}
}

// After a cancellation, any error of the network is reported as Canceled.
func TestGivingUpIsTheReason(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	for ctx, kind := range map[context.Context]fault.Kind{gone: fault.Canceled, late: fault.Timeout} {
		err := testCall(t).tryError(ctx, ctx, net.ErrClosed)
		testkit.WantKind(t, err, kind, kind.Code())
		if !errors.Is(err, ctx.Err()) {
			t.Error(err)
		}
	}
}

// A caller may provide a correlation ID, and the ID of a request goes on with
// the calls that it causes.
func TestWithCorrID(t *testing.T) {
	node := NewFakeNode()
	c := serve(t, node)
	for _, id := range []string{"request-0001", "short", strings.Repeat("x", 65), "with a space", "line\nbreak"} {
		if _, err := c.Version(WithCorrID(t.Context(), id)); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	if _, err := c.Version(corr.With(t.Context(), "request-0002")); err != nil {
		t.Error(err)
	}
	if id := node.seen()[5].Header.Get("X-Corr-ID"); id != "request-0002" {
		t.Errorf("a call of a request has the corr-id %q", id)
	}
	for i, r := range node.seen() {
		if id := r.Header.Get("X-Corr-ID"); (i == 0) != (id == "request-0001") || !corr.Valid(id) {
			t.Errorf("request %d has the corr-id %q", i, id)
		}
	}
}

// Whatever a server answers, the error is one of ours: of a known kind, short,
// fit for a terminal, and without the token.
func FuzzProblem(f *testing.F) {
	whole, _ := json.Marshal(map[string]any{"code": "Busy", "op": "store.put", "detail": "full", "next": "wait", "corr_id": "0123456789abcdef", "status": 429})
	f.Add(429, "application/problem+json", string(whole), "1", "0123456789abcdef")
	f.Add(500, "application/problem+json", `{"detail":"`+token+`\u001b[31m\u202e"}`, "", token)
	f.Add(302, "text/html", "", "Fri, 31 Dec 1999 23:59:59 GMT", "")
	f.Add(404, "application/problem+json", `{"code":7}`, "-1", "x")
	f.Add(200, "application/problem+json;charset=\xff", strings.Repeat(`{"a":`, 1000), "99999999999", "\x00")
	f.Fuzz(func(t *testing.T, status int, media, body, after, id string) {
		a := answer(status, body)
		a.Header = http.Header{"Content-Type": {media}, "Retry-After": {after}, "X-Corr-Id": {id}, "Location": {body}}
		err := testCall(t).responseError(a)
		if _, known := fault.ParseKind(err.Kind.Code()); !known || err.Kind == none {
			t.Errorf("kind %v", err.Kind)
		}
		if err.RetryAfter < 0 || err.RetryAfter > maxRetryAfter {
			t.Errorf("retry after %s", err.RetryAfter)
		}
		if !corr.Valid(CorrID(err)) {
			t.Errorf("corr-id %q", CorrID(err))
		}
		said := err.Error() + err.Next
		if strings.Contains(said, token) || len(said) > 4000 || !utf8.ValidString(said) {
			t.Errorf("it says %q", said)
		}
		if i := strings.IndexFunc(said, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("it says %q", said)
		}
	})
}
