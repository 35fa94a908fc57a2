package node

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"micronode/internal/config"
	"micronode/internal/testkit"
)

// publicWithWork are the settings of a node that strangers may have fill its
// cache; they come through a proxy.
func publicWithWork(more ...config.Flag) []config.Flag {
	flag := func(key, value string) config.Flag { return config.Flag{Key: key, Value: value, Name: "test"} }
	return append(more, flag("http.public", "assets"), flag("http.public", "objects"), flag("http.public", "sites"), flag("http.public", "names"),
		flag("http.trusted_proxies", "127.0.0.1"), flag("limits.public_work", "1000"))
}

// Strangers may have the cache filled from the origins that are allowed, and
// reach nothing else by it: not by the path, by the headers of a request, or by a
// redirect of an origin.
func TestStrangersReachAllowedOriginsOnly(t *testing.T) {
	var hits atomic.Int64
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		hits.Add(1)
		fmt.Fprint(w, "the inside")
	}))
	defer inside.Close()
	target := strings.TrimPrefix(inside.URL, "http://")
	_, port, _ := strings.Cut(target, ":")
	host, flags := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/redirect" {
			w.Header().Set("Location", inside.URL+"/secret")
			w.WriteHeader(http.StatusFound)
			return
		}
		fmt.Fprint(w, "the page of ", r.Host)
	})
	n := start(t, 2, publicWithWork(flags...)...)
	n.waitReady(t)
	gateway := n.gatewayHTTP()
	gateway.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // that is the stranger's own business
	stranger := func(path string, header ...string) answer {
		return gateway.do(t, http.MethodGet, path, nil, append([]string{"X-Forwarded-For", "192.0.2.7", "X-Forwarded-Proto", "https"}, header...)...)
	}
	if got := stranger("/edge/assets/" + host + "/page"); got.status != http.StatusOK || string(got.body) != "the page of "+host {
		t.Fatalf("an allowed origin: %d %s", got.status, got.body)
	}
	for _, path := range []string{
		target + "/secret", "localhost:" + port + "/secret", "[::1]:" + port + "/secret", "0.0.0.0:" + port + "/secret", "127.1:" + port + "/secret", "2130706433:" + port + "/secret",
		"[::ffff:127.0.0.1]:" + port + "/secret", "169.254.169.254/latest/meta-data/", "metadata.google.internal/x", strings.TrimPrefix(n.Info().Admin, "http://") + "/metrics",
		host + "@" + target + "/secret", host + "%40" + target + "/secret", target + "%23" + host + "/secret", "http:%2f%2f" + target + "/secret", host + "%2f..%2f" + target + "/secret",
		host + "/redirect", host + ".evil.example/secret", "name:x@" + target + "/secret",
	} {
		if got := stranger("/edge/assets/" + path); got.status < 400 && got.status != http.StatusFound || strings.Contains(string(got.body), "inside") {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	for _, header := range [][]string{
		{"X-Forwarded-Host", target}, {"Forwarded", "for=192.0.2.7;host=" + target}, {"X-Original-Url", inside.URL + "/secret"}, {"X-Rewrite-Url", "/edge/assets/" + target}, {"Micronode-Base", inside.URL},
		{"Micronode-Client", "127.0.0.1"}, {"Micronode-Site", "1"},
	} {
		if got := stranger("/edge/assets/"+host+"/header", header...); got.status != http.StatusOK || string(got.body) != "the page of "+host {
			t.Errorf("%v: %d %s", header, got.status, got.body)
		}
	}
	testkit.Equal(t, "requests that reached the inside", hits.Load(), 0)
	n.stopAndWait(t)
}

// What proves who a caller is does not leave the node: no capability of this
// node is sent to an origin, whether it is good, spent or of another scope, and
// nothing of what the parts of the node tell each other.
func TestNoCapabilityIsSentToAnOrigin(t *testing.T) {
	for _, forwards := range []string{"", "*"} {
		t.Run("edge.fill.forward_headers="+forwards, func(t *testing.T) {
			var mu sync.Mutex
			var seen []http.Header
			host, flags := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, r.Header.Clone())
				w.Header().Set("Cache-Control", "no-store")
			})
			if forwards != "" {
				flags = append(flags, config.Flag{Key: "edge.fill.forward_headers", Value: forwards, Name: "test"})
			}
			n := start(t, 2, publicWithWork(flags...)...)
			n.waitReady(t)
			good := n.mintRaw(t, `{"scopes":["object:put"],"ttl_s":3600}`)
			other := n.mintRaw(t, `{"scopes":["object:put"],"ttl_s":3600,"path":"/elsewhere"}`)
			for i, header := range [][]string{
				{"Authorization", "Bearer " + good}, {"Authorization", "Bearer " + other}, {"Authorization", "bearer  " + good}, {"Cookie", "session=theirs; token=" + good}, {"X-Token", good},
				{"Micronode-Voucher", good, "Micronode-Client", "127.0.0.1", "Micronode-Stranger", "1"},
			} {
				n.gatewayHTTP().do(t, http.MethodGet, fmt.Sprintf("/edge/assets/%s/%d", host, i), nil, append([]string{"X-Forwarded-For", "192.0.2.7"}, header...)...)
			}
			n.stopAndWait(t)
			mu.Lock()
			defer mu.Unlock()
			if len(seen) == 0 {
				t.Error("the origin was never asked, so the test cannot fail")
			}
			for _, header := range seen {
				for key, values := range header {
					if text := strings.Join(values, " "); strings.Contains(text, good) || strings.Contains(text, other) || strings.HasPrefix(key, "Micronode-") {
						t.Errorf("the origin saw %s: %.40s…", key, text)
					}
				}
			}
		})
	}
}
