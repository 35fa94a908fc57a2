package node

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/capability"
	"micronode/internal/gateway"
)

// fakePart listens at a part's address, and records all requests.
type fakePart struct {
	*httptest.Server
	mu       sync.Mutex
	requests []string // guarded by mu
}

// newFakePart answers everything with a handler.
func newFakePart(t *testing.T, answer http.HandlerFunc) *fakePart {
	t.Helper()
	i := &fakePart{}
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		i.mu.Lock()
		i.requests = append(i.requests, fmt.Sprintf("%s %s %v %s", r.Method, r.URL, r.Header, body))
		i.mu.Unlock()
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		answer(w, r)
	}))
	t.Cleanup(i.Close)
	return i
}

func (f *fakePart) recorded() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.requests)
}

// A process that holds the port of a part gets nothing of use: no capability,
// neither of the node nor of a client, and no content of requests. It is
// counted, and readiness reports it.
func TestImpostorAtPartAddr(t *testing.T) {
	secret := "attack at dawn"
	for name, answer := range map[string]http.HandlerFunc{
		"that says yes to everything": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") },
		"that knows nothing":          http.NotFound,
		"that repeats what it hears":  func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) },
	} {
		t.Run(name, func(t *testing.T) {
			k := newSplitNode(t, map[string][]string{"gateway": {"gateway", "store", "edge", "overlay", "registry", "index"}, "mailbox": {"mailbox"}})
			fake := newFakePart(t, answer)
			k.urls["mailbox"] = fake.URL
			gate := k.start("gateway")
			verdict := gate.waitReadiness(t, gate.localClient(t), func(r client.Readiness) bool {
				return slices.ContainsFunc(r.Reasons, func(one client.Reason) bool {
					return one.Dep == "node/mailbox" && strings.Contains(one.Reason, "prove")
				})
			})
			if verdict.Ready {
				t.Errorf("%+v", verdict)
			}
			token := gate.mint(t, gate.localClient(t), client.MintRequest{Scopes: []string{"mbox:send"}, TTL: time.Hour})
			for _, by := range []*client.Client{gate.localClient(t), gate.tokenClient(t, token)} {
				_, err := by.SendMail(t.Context(), "jobs", []byte(secret), client.MailOptions{})
				if fault.KindOf(err) != fault.UpstreamFailed || fault.NextOf(err) == "" {
					t.Errorf("%v; %s", err, fault.NextOf(err))
				}
			}
			heard := fake.recorded()
			if len(heard) == 0 {
				t.Fatal("nobody spoke to it; the test tests nothing")
			}
			for _, line := range heard {
				if strings.Contains(line, "mn1_") || strings.Contains(line, secret) || strings.Contains(line, "YXR0YWNr") || strings.Contains(line, "Authorization") {
					t.Errorf("it was told %.300s", line)
				}
			}
			if counted := testutil.ToFloat64(gate.metrics.For(service).Rejected.WithLabelValues("impostor")); counted == 0 {
				t.Error("nobody counted")
			}
			gate.stopAndWait(t)
		})
	}
}

// One that relays everything to the real part, and back, is detected as well:
// the proof is bound to the connection.
func TestAnImpostorThatPassesItOn(t *testing.T) {
	k := newSplitNode(t, map[string][]string{"gateway": {"gateway", "store", "edge", "overlay", "registry", "index"}, "mailbox": {"mailbox"}})
	real := k.start("mailbox")
	real.waitReady(t)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	fake := newFakePart(t, func(w http.ResponseWriter, r *http.Request) {
		out, _ := http.NewRequestWithContext(r.Context(), r.Method, real.Info().HTTP+r.URL.Path, r.Body)
		out.Header = r.Header.Clone()
		answer, err := transport.RoundTrip(out)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer answer.Body.Close()
		w.WriteHeader(answer.StatusCode)
		_, _ = io.Copy(w, answer.Body)
	})
	k.urls["mailbox"] = fake.URL
	gate := k.start("gateway")
	gate.waitReadiness(t, gate.localClient(t), func(r client.Readiness) bool {
		return slices.ContainsFunc(r.Reasons, func(one client.Reason) bool {
			return one.Dep == "node/mailbox" && strings.Contains(one.Reason, "prove")
		})
	})
	for _, line := range fake.recorded() {
		if strings.Contains(line, "mn1_") {
			t.Errorf("it was told %.300s", line)
		}
	}
	gate.stopAndWait(t)
	real.stopAndWait(t)
}

// The token that a part receives covers that call alone, for a minute, whatever
// the caller's token allows.
func TestWhatAPartIsSentIsGoodForOneCall(t *testing.T) {
	k := newSplitNode(t, map[string][]string{"gateway": {"gateway", "edge", "overlay", "registry", "index", "mailbox"}, "store": {"store"}})
	owner, err := New(t.Context(), k.options("store")) // it has the root, and no other function here
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	var mu sync.Mutex
	var shown []*http.Request
	fake := newProvenPart(t, owner, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		shown = append(shown, r)
		mu.Unlock()
		http.NotFound(w, r)
	})
	k.urls["store"] = fake.URL
	gate := k.start("gateway")
	token := gate.mint(t, gate.localClient(t), client.MintRequest{Scopes: []string{"admin"}, TTL: time.Hour})
	_ = gate.tokenClient(t, token).Delete(t.Context(), b3.Of([]byte("x")))                     // forwarded as it came
	gate.gatewayHTTP().do(t, http.MethodGet, "/edge/assets/"+b3.Of([]byte("x")).String(), nil) // the edge calls by itself
	gate.stopAndWait(t)
	mu.Lock()
	calls := slices.Clone(shown)
	mu.Unlock()
	removed, asked := false, false
	for _, r := range calls {
		given := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if given == token {
			t.Errorf("%s %s has the token of the client", r.Method, r.URL)
		}
		wantOneCallToken(t, owner, r, given)
		removed = removed || r.Method == http.MethodDelete
		asked = asked || r.Method != http.MethodDelete && !strings.HasPrefix(r.URL.Path, partStatusPath)
	}
	if !removed || !asked {
		t.Errorf("of %d calls, removed is %t and asked for is %t; the test tests nothing", len(calls), removed, asked)
	}
}

// newProvenPart is a server in the role of a part, which proves to be one of
// that node.
func newProvenPart(t *testing.T, of *Node, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	proof := gateway.ProofRoute(service, of.root.Proof)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != gateway.ProofPath {
			handler(w, r)
		} else if err := proof.Handler(w, r); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// wantOneCallToken demands that a capability covers a request, and little else.
func wantOneCallToken(t *testing.T, n *Node, r *http.Request, token string) {
	t.Helper()
	summary, err := capability.Inspect(token)
	if err != nil {
		t.Errorf("%s %s: %v", r.Method, r.URL, err)
		return
	}
	scope := summary.Scopes[0]
	covered := capability.Request{Scope: scope, Path: r.URL.Path}
	if err := n.authority.Check(token, covered); err != nil {
		t.Errorf("%s %s: %v", r.Method, r.URL, err)
	}
	elsewhere := capability.Request{Scope: scope, Path: "/admin/token"}
	if err := n.authority.Check(token, elsewhere); fault.KindOf(err) != fault.Forbidden {
		t.Errorf("%s %s: what was sent with it is good for minting, too: %q", r.Method, r.URL, summary.Caveats)
	}
	if slices.Contains(summary.Scopes, capability.Admin) && !strings.HasPrefix(r.URL.Path, partStatusPath) {
		t.Errorf("%s %s: what was sent with it is good for everything there: %q", r.Method, r.URL, summary.Caveats)
	}
	if summary.Expires.After(time.Now().Add(partTokenLife)) {
		t.Errorf("%s %s: it is good until %s", r.Method, r.URL, summary.Expires)
	}
}
