package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"micronode/fault"
	"micronode/internal/testkit"
)

const token = "mn1_c2VjcmV0LXRva2VuLW9mLXRoZS10ZXN0cw"

func TestNewRefusesWhatCannotWork(t *testing.T) {
	for name, o := range map[string]Options{
		"no URL":                 {URL: "http://[::1"},
		"another scheme":         {URL: "ftp://node.example"},
		"no host":                {URL: "https:///o"},
		"a user in the URL":      {URL: "https://me:" + token + "@node.example"},
		"a query":                {URL: "https://node.example/?token=" + token},
		"a token as URL":         {URL: token},
		"a broken token URL":     {URL: "https://node.example/%zz" + token},
		"a token in the clear":   {URL: "http://node.example", Token: token},
		"a token with a line":    {URL: "https://node.example", Token: token + "\r\nX: y"},
		"a token with a space":   {URL: "https://node.example", Token: token + " " + token},
		"URL and Socket":         {URL: "https://node.example", Socket: "a"},
		"HTTPClient and socket":  {HTTPClient: &http.Client{}},
		"a long socket":          {Socket: strings.Repeat("s", 108)},
		"a zero byte":            {Socket: "a\x00b"},
		"an abstract path":       {Socket: "@/run/micronode"},
		"a negative Timeout":     {Timeout: -time.Second},
		"negative Tries":         {Retry: Retry{Tries: -1}},
		"a negative pause":       {Retry: Retry{First: -1}},
		"a UserAgent with lines": {UserAgent: "a\nb"},
	} {
		c, err := New(o)
		testkit.WantKind(t, err, fault.Malformed, name)
		if c != nil || fault.NextOf(err) == fault.Malformed.Next() {
			t.Errorf("%s: client %v, next step %q", name, c, fault.NextOf(err))
		}
		if err != nil && strings.Contains(err.Error()+fault.NextOf(err), token) {
			t.Errorf("%s: the error shows the token: %v", name, err)
		}
	}
}

func TestTokensTravelInTheClearOnThisMachineOnly(t *testing.T) {
	for _, host := range []string{"127.0.0.1:8080", "127.8.8.8", "[::1]:80", "localhost", "LOCALHOST.", "node.localhost:1"} {
		if _, err := New(Options{URL: "http://" + host, Token: token}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	for _, host := range []string{"10.0.0.1", "localhost.example", "notlocalhost", "[fe80::1]"} {
		_, err := New(Options{URL: "http://" + host, Token: token})
		testkit.WantKind(t, err, fault.Malformed, host)
	}
}

func TestFromEnvironment(t *testing.T) {
	t.Setenv(envURL, "")
	t.Setenv(envToken, token)
	c, err := FromEnvironment()
	if want := fmt.Sprintf("client of the socket @micronode-%d", os.Geteuid()); err != nil || c.String() != want {
		t.Errorf("without MICRO_URL: %v, %v, want %s", c, err, want)
	}
	if c.secret.token != "" {
		t.Error("the local socket would be sent the token")
	}
	t.Setenv(envSocket, "second")
	if c, err := FromEnvironment(); err != nil || c.String() != "client of the socket @second" {
		t.Errorf("with MICRO_SOCKET: %v, %v", c, err)
	}
	t.Setenv(envURL, "http://127.0.0.1:8080")
	_, err = FromEnvironment()
	testkit.WantKind(t, err, fault.Malformed, "a socket and a URL")
	t.Setenv(envSocket, "")

	var got http.Header
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		writeJSON(w, 200, `{"version":"9"}`)
	}))
	defer server.Close()
	t.Setenv(envURL, server.URL+"/")
	t.Setenv(envToken, token+"\n")
	c, err = FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	version, err := c.Version(t.Context())
	if err != nil || version.Version != "9" {
		t.Errorf("%+v, %v", version, err)
	}
	if got.Get("Authorization") != "Bearer "+token || got.Get("User-Agent") != "micronode-client" {
		t.Errorf("sent %v", got)
	}
}

// Printing or logging a client or its options does not show the token.
func TestTheTokenIsNeverPrinted(t *testing.T) {
	o := Options{URL: "https://node.example", Token: token}
	c := dial(t, o)
	var logged strings.Builder
	for _, handler := range []slog.Handler{slog.NewTextHandler(&logged, nil), slog.NewJSONHandler(&logged, nil)} {
		slog.New(handler).Info("made", "client", c, "options", o, "pointer", &o)
	}
	raw, err := json.Marshal(o)
	if err != nil {
		t.Error(err)
	}
	said := fmt.Sprintf("%v %+v %#v %s %v %+v %#v %v %+v %#v %s %s", c, c, c, c, *c, *c, *c, o, o, o, raw, logged.String())
	if strings.Contains(said, token) {
		t.Errorf("the token is in %s", said)
	}
	if !strings.Contains(said, "client of node.example") || !strings.Contains(said, "client options for https://node.example with a token") {
		t.Errorf("it does not say which node: %s", said)
	}
	for _, o := range []Options{{URL: "http://" + token + ":x@node.example"}, {Socket: "/run/x"}} {
		if text := o.String(); strings.Contains(text, token) || !strings.Contains(text, "no token") {
			t.Error(text)
		}
	}
}

// A server that repeats the request does not get the token into an error.
func TestAnEchoDoesNotBringTheTokenBack(t *testing.T) {
	for name, echo := range map[string]func(http.ResponseWriter, string){
		"problem": func(w http.ResponseWriter, secret string) {
			raw, _ := json.Marshal(map[string]string{"code": "Forbidden", "op": secret, "detail": "not with " + secret, "next": secret, "corr_id": secret})
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(403)
			_, _ = w.Write(raw)
		},
		"redirect": func(w http.ResponseWriter, secret string) {
			w.Header().Set("Location", "http://"+secret+".example/")
			w.WriteHeader(307)
		},
		"corr": func(w http.ResponseWriter, secret string) {
			w.Header().Set("X-Corr-ID", secret)
			w.WriteHeader(500)
		},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			echo(w, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		}))
		c := dial(t, Options{URL: server.URL, Token: token})
		_, err := c.MintToken(t.Context(), MintRequest{Scopes: []string{"admin"}, TTL: time.Hour})
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		said := fmt.Sprintf("%v %+v %s %s %s %s", err, err, fault.OpOf(err), fault.DetailOf(err), fault.NextOf(err), CorrID(err))
		for cause := err; cause != nil; cause = errors.Unwrap(cause) {
			said += fmt.Sprintf(" %+v", cause)
		}
		if strings.Contains(said, token) {
			t.Errorf("%s: the token is in %s", name, said)
		}
		c.Close()
		server.Close()
	}
}

// A caller's own HTTPClient makes the requests, and is not changed.
func TestHTTPClient(t *testing.T) {
	node := NewFakeNode()
	server := httptest.NewUnstartedServer(node)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()

	c := dial(t, Options{URL: server.URL, Retry: quick})
	_, err := c.Version(t.Context())
	testkit.WantKind(t, err, fault.Forbidden, "a certificate that nobody knows")
	if len(node.seen()) != 0 {
		t.Error("it was sent all the same")
	}

	theirs := server.Client()
	before := *theirs
	c = dial(t, Options{URL: server.URL, Token: token, HTTPClient: theirs, UserAgent: "tests/1"})
	version, err := c.Version(t.Context())
	if err != nil || version.Version != "1.2.3" {
		t.Errorf("%+v, %v", version, err)
	}
	if theirs.Transport != before.Transport || theirs.CheckRedirect != nil {
		t.Error("the caller's HTTPClient was changed")
	}
	if got := node.seen()[0].Header; got.Get("Authorization") != "Bearer "+token || got.Get("User-Agent") != "tests/1" {
		t.Errorf("sent %v", got)
	}
	if _, err := New(Options{URL: server.URL, HTTPClient: &http.Client{}}); err != nil {
		t.Errorf("without a transport: %v", err)
	}
}

// A node may live below a path of a bigger server.
func TestAPathInTheURL(t *testing.T) {
	node := NewFakeNode()
	server := httptest.NewServer(http.StripPrefix("/nodes/a", node))
	defer server.Close()
	c := dial(t, Options{URL: server.URL + "/nodes/a/"})
	if _, err := c.Version(t.Context()); err != nil {
		t.Error(err)
	}
}
