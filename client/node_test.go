package client

import (
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"micronode/fault"
	"micronode/internal/testkit"
)

func TestStatus(t *testing.T) {
	status, err := serve(t, NewFakeNode()).Status(t.Context())
	want := Status{PeerID: "abc", Version: "1.2.3", Profile: "micronode", Amnesia: true,
		Listen: Listen{HTTP: "127.0.0.1:8080", Admin: "127.0.0.1:9600", Overlay: "127.0.0.1:9500"}, Ready: true, WriteReady: true,
		Services: []Service{{Name: "store", State: "running", Restarts: 2}}, Queues: []Queue{{"node", "work", 3, 256}}}
	if err != nil || !reflect.DeepEqual(status, want) {
		t.Errorf("%+v, %v", status, err)
	}
	// The command line prints it unchanged: the members of the contract.
	raw, err := json.Marshal(Status{Services: []Service{{}}, Queues: []Queue{{}}})
	const shape = `{"peer_id":"","version":"","profile":"","amnesia":false,"confined":"","listen":{"http":"","admin":"","overlay":""},` +
		`"ready":false,"write_ready":false,"degraded":false,"services":[{"name":"","state":"","restarts":0}],` +
		`"queues":[{"service":"","name":"","depth":0,"cap":0}],"store":{"objects":0,"bytes":0,"budget":0},` +
		`"memory":{"used":0,"limit":0,"from":""}}`
	if err != nil || string(raw) != shape {
		t.Errorf("%s, %v", raw, err)
	}
}

func TestVersion(t *testing.T) {
	version, err := serve(t, NewFakeNode()).Version(t.Context())
	if want := (Version{"node", "1.2.3", "c0ffee", "today", "go1.26", []string{"traces"}}); err != nil || !reflect.DeepEqual(version, want) {
		t.Errorf("%+v, %v", version, err)
	}
}

// A node that is not ready has answered all the same.
func TestReady(t *testing.T) {
	node := NewFakeNode()
	c := serve(t, node)
	verdict, err := c.Ready(t.Context())
	if err != nil || !verdict.Whole() {
		t.Errorf("%+v, %v", verdict, err)
	}
	node.Before = func(w http.ResponseWriter, _ *http.Request, _ int) bool {
		w.Header().Set("Retry-After", "1")
		writeJSON(w, 503, `{"ready":true,"write_ready":false,"degraded":true,"missing":["store/disk"],`+
			`"reasons":[{"dep":"store/disk","reason":"full","next":"Make room."}],"retry_after":1}`)
		return true
	}
	verdict, err = c.Ready(t.Context())
	want := Readiness{Ready: true, Degraded: true, Missing: []string{"store/disk"}, Reasons: []Reason{{"store/disk", "full", "Make room."}}, RetryAfter: 1}
	if err != nil || !reflect.DeepEqual(verdict, want) || verdict.Whole() || len(node.seen()) != 2 {
		t.Errorf("%+v, %v after %d requests", verdict, err, len(node.seen()))
	}

	// A 503 without a readiness document is a refusal.
	node.Before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		refuse(w, r, fault.Busy, "full")
		return true
	}
	_, err = c.Ready(t.Context())
	testkit.WantKind(t, err, fault.Busy, "a refusal")
	node.Before = func(w http.ResponseWriter, _ *http.Request, _ int) bool {
		http.Error(w, "no back end", http.StatusServiceUnavailable)
		return true
	}
	_, err = c.Ready(t.Context())
	testkit.WantKind(t, err, fault.NotReady, "a page of a proxy")
}

func TestEqualReadiness(t *testing.T) {
	one := Readiness{Ready: true, Missing: []string{"store"}, Reasons: []Reason{{Dep: "store", Reason: "full", Next: "Delete some."}}, RetryAfter: 1}
	later, other := one, one
	later.RetryAfter, other.Reasons = 2, []Reason{{Dep: "store", Reason: "slow"}}
	if !one.Equal(later) || one.Equal(other) || one.Equal(Readiness{}) {
		t.Errorf("%+v: %t, %t, %t", one, one.Equal(later), one.Equal(other), one.Equal(Readiness{}))
	}
}

func TestMintToken(t *testing.T) {
	node := NewFakeNode()
	var asked, media string
	say := `{"token":"mn1_minted"}`
	node.Before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		raw, _ := io.ReadAll(r.Body)
		asked, media = r.Method+" "+r.URL.Path+" "+string(raw), r.Header.Get("Content-Type")
		writeJSON(w, 200, say)
		return true
	}
	c := serve(t, node)
	minted, err := c.MintToken(t.Context(), MintRequest{Scopes: []string{"object:put"}, TTL: 90*time.Second + 1})
	if err != nil || minted != "mn1_minted" || asked != `POST /admin/token {"scopes":["object:put"],"ttl_s":90}` || media != "application/json" {
		t.Errorf("%s, %v; asked %s as %s", minted, err, asked, media)
	}
	_, err = c.MintToken(t.Context(), MintRequest{Scopes: []string{"object:put", "mbox:send"}, TTL: time.Hour,
		PathPrefix: "/o", TopicPrefix: "news", Rate: "10/1s", Clients: []string{"10.0.0.0/8"}})
	if want := `{"scopes":["object:put","mbox:send"],"ttl_s":3600,"path":"/o","topic":"news","rate":"10/1s","ips":["10.0.0.0/8"]}`; err != nil || !strings.HasSuffix(asked, want) {
		t.Errorf("%v; asked %s", err, asked)
	}

	n := len(node.seen())
	for _, empty := range []MintRequest{{}, {TTL: time.Hour}, {Scopes: []string{"admin"}}, {Scopes: []string{"admin"}, TTL: time.Second - 1}, {Scopes: []string{"admin"}, TTL: -time.Hour}} {
		_, err := c.MintToken(t.Context(), empty)
		testkit.WantKind(t, err, fault.Malformed, "a token for nothing")
	}
	if len(node.seen()) != n {
		t.Error("a token for nothing was asked for")
	}
	say = `{}`
	_, err = c.MintToken(t.Context(), MintRequest{Scopes: []string{"admin"}, TTL: time.Hour})
	testkit.WantKind(t, err, fault.UpstreamFailed, "no token")
}

// A page where a document should be does not come from a node.
func TestAnotherServer(t *testing.T) {
	node := NewFakeNode()
	node.Before = func(w http.ResponseWriter, _ *http.Request, _ int) bool {
		_, _ = io.WriteString(w, "<h1>welcome</h1>")
		return true
	}
	_, err := serve(t, node).Status(t.Context())
	testkit.WantKind(t, err, fault.UpstreamFailed, "a page")
	if !strings.Contains(fault.NextOf(err), "MICRO_URL") || CorrID(err) == "" || len(node.seen()) != 1 {
		t.Errorf("%v after %d tries; next: %s", err, len(node.seen()), fault.NextOf(err))
	}

	// A truncated document may be complete at the next try.
	node.Before = func(w http.ResponseWriter, _ *http.Request, n int) bool {
		if n > 2 {
			return false
		}
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, `{"service":`)
		return true
	}
	if _, err := serve(t, node).Version(t.Context()); err != nil || len(node.seen()) != 3 {
		t.Errorf("%v after %d tries", err, len(node.seen()))
	}
}
