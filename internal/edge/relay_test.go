package edge

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"micronode/internal/capability"
	"micronode/internal/edge/fill"
	"micronode/internal/ingress"
	"micronode/internal/testkit"
)

// Conditions and ranges are answered by the origin's own validators, and weak
// ones have fewer uses.
func TestConditionsByTheOriginsValidators(t *testing.T) {
	made := time.Now().Add(-time.Minute).UTC().Truncate(time.Second)
	host, change := origin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=600")
		w.Header().Set("Date", made.Format(http.TimeFormat))
		switch r.URL.Path {
		case "/strong":
			w.Header().Set("Etag", `"v1"`)
		case "/weak":
			w.Header().Set("Etag", `W/"v1"`)
		case "/old":
			w.Header().Set("Last-Modified", made.Add(-time.Hour).Format(http.TimeFormat))
		case "/new":
			w.Header().Set("Last-Modified", made.Format(http.TimeFormat))
		}
		fmt.Fprint(w, "hello")
	})
	f := newFixture(t, change)
	at := func(d time.Duration) string { return made.Add(d).Format(http.TimeFormat) }
	for _, c := range []struct {
		path    string
		headers []string
		status  int
	}{
		{"/strong", []string{"If-None-Match", `"v1"`}, 304},
		{"/strong", []string{"If-None-Match", `W/"v1"`}, 304},
		{"/strong", []string{"If-None-Match", `"v0", "v1"`}, 304},
		{"/strong", []string{"If-None-Match", `"v0"`}, 200},
		{"/strong", []string{"If-Match", `"v1"`}, 200},
		{"/strong", []string{"If-Match", `"v2"`}, 412},
		{"/strong", []string{"Range", "bytes=1-2", "If-Range", `"v1"`}, 206},
		{"/strong", []string{"Range", "bytes=1-2", "If-Range", `"v2"`}, 200},
		{"/weak", []string{"If-None-Match", `"v1"`}, 304},
		{"/weak", []string{"If-Match", `W/"v1"`}, 412},
		{"/weak", []string{"Range", "bytes=1-2", "If-Range", `W/"v1"`}, 200},
		{"/weak", []string{"Range", "bytes=1-2"}, 206},
		{"/old", []string{"If-Modified-Since", at(-time.Hour)}, 304},
		{"/old", []string{"If-Modified-Since", at(-2 * time.Hour)}, 200},
		{"/old", []string{"Range", "bytes=1-2", "If-Range", at(-time.Hour)}, 206},
		{"/new", []string{"Range", "bytes=1-2", "If-Range", at(0)}, 200},
		{"/none", []string{"If-Modified-Since", at(0)}, 304},
		{"/none", []string{"If-Modified-Since", at(-time.Second)}, 200},
	} {
		path := "/edge/assets/" + host + c.path
		f.get(path)
		got := f.get(path, c.headers...)
		if got.status != c.status {
			t.Errorf("%s %q: %d, want %d", c.path, c.headers, got.status, c.status)
		}
		if got.status < 400 && got.header.Get("Date") != at(0) {
			t.Errorf("%s %q: Date %s, want %s", c.path, c.headers, got.header.Get("Date"), at(0))
		}
	}
}

// The warm lane keeps the Date and the validator of the origin's answer.
func TestTheWarmLaneKeepsTheDate(t *testing.T) {
	made := time.Now().Add(-time.Minute).UTC().Format(http.TimeFormat)
	host, change := origin(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "max-age=600")
		w.Header().Set("Date", made)
		w.Header().Set("Etag", `W/"v1"`)
		w.Header().Set("Server", "theirs")
		fmt.Fprint(w, "hello")
	})
	f := newFixture(t, func(o *options) {
		change(o)
		o.warm = true
	})
	target := "/edge/assets/" + host + "/x"
	f.get(target)
	prepared, ready := f.edge.WarmRoutes().Lookup([]byte(target))
	if !ready || prepared == nil {
		t.Fatal("it is not for the warm lane")
	}
	warm, cold := f.asIs(target), f.asIs(target, "X-Other: the lane does not know it")
	if warm != cold {
		t.Errorf("the warm lane:\n%.600q\nthe handler:\n%.600q", warm, cold)
	}
	for _, line := range []string{"\r\nDate: " + made + "\r\n", "\r\nEtag: W/\"v1\"\r\n", "\r\nServer: theirs\r\n"} {
		if strings.Count(warm, line) != 1 {
			t.Errorf("not once %q in\n%s", line, warm)
		}
	}
	if strings.Count(warm, "\r\nDate: ") != 1 {
		t.Errorf("two dates in\n%s", warm)
	}
}

// Withheld headers of an origin are not relayed, on a miss and on a hit, and
// the documentation has the whole list.
func TestWithheldHeaders(t *testing.T) {
	document, err := os.ReadFile("../../docs/edge.md")
	if err != nil {
		t.Fatal(err)
	}
	sent := map[string]string{}
	for name, reason := range fill.Withheld {
		shown := strings.TrimSuffix(name, "-")
		if !strings.Contains(strings.ToLower(string(document)), "`"+strings.ToLower(shown)) || !strings.Contains(string(document), reason) {
			t.Errorf("docs/edge.md does not say that %s is withheld, and why: %s", name, reason)
		}
		if strings.HasSuffix(name, "-") {
			name += "Anything"
		}
		sent[name] = "evil"
	}
	delete(sent, "Content-Length")
	relayed := map[string]string{"X-Own": "1", "Server": "theirs", "Via": "1.1 theirs", "Link": "</a>; rel=next",
		"Content-Disposition": "attachment", "Sourcemap": "a.map", "Cache-Status": "theirs; hit", "X-Accelerated": "1"}
	for _, name := range []string{"Location", "Cloudflare-Cdn-Cache-Control"} { // of these statuses; of these networks
		sent[name] = "evil"
	}
	host, change := origin(t, func(w http.ResponseWriter, r *http.Request) {
		for name, value := range sent {
			w.Header().Set(name, value)
		}
		for name, value := range relayed {
			w.Header().Set(name, value)
		}
		w.Header().Set("Cache-Control", "public, max-age=600")
		if r.URL.Path == "/refused" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		fmt.Fprint(w, "hello")
	})
	f := newFixture(t, change)
	for _, path := range []string{"/a", "/a", "/refused"} {
		got := f.get("/edge/assets/" + host + path)
		for name := range sent {
			for _, value := range got.header.Values(name) {
				if strings.Contains(value, "evil") {
					t.Errorf("%s: %s is relayed", path, name)
				}
			}
		}
		for name, value := range relayed {
			if got.header.Get(name) != value {
				t.Errorf("%s: %s is %q, want %q", path, name, got.header.Get(name), value)
			}
		}
	}
}

// A failing response of the origin is relayed as it is, and not replaced by
// ours.
func TestFailuresAreTheOriginsOwn(t *testing.T) {
	host, change := origin(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, "<p>back soon</p>")
	})
	f := newFixture(t, change)
	got := f.get("/edge/assets/" + host + "/x")
	if got.status != http.StatusServiceUnavailable || string(got.body) != "<p>back soon</p>" || got.header.Get("Retry-After") != "7" || got.header.Get("Content-Type") != "text/html" {
		t.Errorf("%d %v %q", got.status, got.header, got.body)
	}
	if f.rejects("upstream") != 1 {
		t.Errorf("counted %v times", f.rejects("upstream"))
	}
}

// A request that would change something at an origin is rejected with a next
// step.
func TestUnsafeMethods(t *testing.T) {
	host, change := origin(t, func(http.ResponseWriter, *http.Request) { t.Error("the origin was asked") })
	f := newFixture(t, change)
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "M-SEARCH"} {
		got := f.ask(method, "/edge/assets/"+host+"/x")
		if got.status != http.StatusMethodNotAllowed || got.header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %d, Allow: %q", method, got.status, got.header.Get("Allow"))
		}
	}
}

// How long a client waits is a setting, and no constant overrules it.
func TestTheSettingsDecideHowLong(t *testing.T) {
	for _, route := range (&Edge{}).Routes() {
		if route.Deadline != 0 {
			t.Errorf("%s has a deadline of its own: %s", route.Pattern, route.Deadline)
		}
	}
	release := make(chan struct{})
	host, change := origin(t, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	f := newFixture(t, func(o *options) {
		change(o)
		o.times.FirstByte = 50 * time.Millisecond
	})
	if got := f.get("/edge/assets/" + host + "/x"); got.status != http.StatusGatewayTimeout {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// Even if every header is forwarded, capabilities of this node are not.
func TestOurCapabilitiesReachNoOrigin(t *testing.T) {
	seen := make(chan http.Header, 16)
	host, change := origin(t, func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header })
	f := newFixture(t, func(o *options) {
		change(o)
		o.spec.Config.Fill.ForwardHeaders = []string{"*"}
	})
	const ours = capability.Prefix + "secret"
	for i, value := range []string{"Bearer " + ours, "bearer " + ours, "BEARER " + ours, "Bearer  " + ours, "bEaReR   " + ours + " ", "Bearer \t" + ours} {
		f.get(fmt.Sprintf("/edge/assets/%s/%d", host, i), "Authorization", value, ingress.VoucherHeader, ours, ingress.ClientHeader, "10.0.0.1")
		for name, values := range <-seen {
			if strings.Contains(strings.Join(values, " "), ours) || strings.HasPrefix(name, "Micronode-") {
				t.Errorf("%q: the origin sees %s: %q", value, name, values)
			}
		}
	}
	f.get("/edge/assets/"+host+"/theirs", "Authorization", "Bearer theirs")
	if got := <-seen; got.Get("Authorization") != "Bearer theirs" {
		t.Errorf("what is meant for the origin got lost: %v", got)
	}
	two := withoutCapability(http.Header{"Authorization": {"Bearer theirs", "bearer  " + ours}})
	if got := two["Authorization"]; len(got) != 1 || got[0] != "Bearer theirs" {
		t.Errorf("of two: %q", got)
	}
}

// A large file is streamed to the client, and one that breaks off is cut off,
// so that no client takes half of it for the whole.
func TestALargeFileIsSentOnAsItComes(t *testing.T) {
	const half = 256 << 10
	for _, declared := range []bool{true, false} {
		more := make(chan bool)
		host, change := origin(t, func(w http.ResponseWriter, r *http.Request) {
			if declared {
				w.Header().Set("Content-Length", fmt.Sprint(2*half))
			}
			w.Header().Set("Cache-Control", "max-age=60")
			_, _ = w.Write(make([]byte, half))
			_ = http.NewResponseController(w).Flush()
			if !<-more {
				panic(http.ErrAbortHandler)
			}
			_, _ = w.Write(make([]byte, half))
		})
		f := newFixture(t, change)
		for _, whole := range []bool{false, true} {
			got, err := http.Get(f.url + "/edge/assets/" + host + "/large")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(got.Body, make([]byte, half)); err != nil {
				t.Fatalf("the first half did not come before the second: %v", err)
			}
			more <- whole
			rest, err := io.ReadAll(got.Body)
			_ = got.Body.Close()
			if whole != (err == nil) || whole && len(rest) != half {
				t.Errorf("declared %v, whole %v: %d bytes more, %v", declared, whole, len(rest), err)
			}
		}
		http.DefaultClient.CloseIdleConnections()
		testkit.WaitFor(t, "the store has it", func() bool { return f.waiting() == 0 }) // the last byte is sent before
		if got := f.get("/edge/assets/"+host+"/large", "Range", "bytes=1-2"); got.status != http.StatusPartialContent || got.header.Get("Age") == "" {
			t.Errorf("it was not kept: %d %v", got.status, got.header)
		}
	}
}

// No byte that an origin gets contains a capability of this node, wherever a
// client wrote it and however: such a request is refused, and says why. One
// that carries it as it is meant to be carried is served without it.
func TestACapabilityIsNotForwardedHoweverItIsWritten(t *testing.T) {
	seen := make(chan *http.Request, 16)
	host, change := origin(t, func(_ http.ResponseWriter, r *http.Request) { seen <- r })
	f := newFixture(t, func(o *options) {
		change(o)
		o.spec.Config.Fill.ForwardHeaders = []string{"*"}
	})
	const ours = capability.Prefix + "AgIZAQ-secret_0123456789"
	basic := base64.StdEncoding.EncodeToString([]byte("ada:" + ours))
	for i, c := range []struct{ path, name, value string }{
		{"", "Authorization", "Bearer\t" + ours},
		{"", "Authorization", ours},
		{"", "Authorization", "Token " + ours},
		{"", "Authorization", "Bearer theirs, Bearer " + ours},
		{"", "Authorization", "Basic " + basic},
		{"", "Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte(ours+":"))},
		{"", "X-Api-Key", ours},
		{"", "Cookie", "a=b; token=" + ours},
		{"", "Referer", "https://elsewhere.test/?token=" + ours},
		{"", "User-Agent", "curl " + ours},
		{"", "X-Escaped", "%6Dn1%5f" + strings.TrimPrefix(ours, capability.Prefix)},
		{"?access_token=" + ours, "", ""},
		{"?access_token=%6d%6E1_" + strings.TrimPrefix(ours, capability.Prefix), "", ""},
		{"?access_token=%256dn1_" + strings.TrimPrefix(ours, capability.Prefix), "", ""},
		{"?a=" + basic, "", ""},
		{"/" + ours + "/x.css", "", ""},
		{"/%6dn1%5F" + strings.TrimPrefix(ours, capability.Prefix), "", ""},
	} {
		var headers []string
		if c.name != "" {
			headers = []string{c.name, c.value}
		}
		got := f.get(fmt.Sprintf("/edge/assets/%s/%d%s", host, i, c.path), headers...)
		if got.status != http.StatusBadRequest || !strings.Contains(string(got.body), "capability") {
			t.Errorf("%s %s: %q: %d %s", c.path, c.name, c.value, got.status, got.body)
		}
		if strings.Contains(string(got.body), "AgIZAQ") {
			t.Errorf("the answer repeats it: %s", got.body)
		}
		if len(seen) > 0 {
			r := <-seen
			t.Errorf("%s %s: %q: the origin saw %s %v", c.path, c.name, c.value, r.URL, r.Header)
		}
	}
	for len(f.audited) > 0 {
		if event := <-f.audited; strings.Contains(event.URL, "AgIZAQ") {
			t.Errorf("an event tells it: %+v", event)
		}
	}
	// What only looks a little like one is forwarded.
	f.get("/edge/assets/"+host+"/column1_x?column1_=mn1", "X-Api-Key", "mn1_")
	if r := <-seen; r.URL.RequestURI() != "/column1_x?column1_=mn1" || r.Header.Get("X-Api-Key") != "mn1_" {
		t.Errorf("%s %v", r.URL, r.Header)
	}
}
