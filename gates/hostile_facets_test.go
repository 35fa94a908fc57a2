//go:build gates

package gates

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"micronode/b3"
	"micronode/client"
)

// A hostile client of each facet, at the defaults, beside a good one of the
// same facet at another address: it posts, follows, searches and has pictures
// scaled as fast as it can. The good one is served.
func TestFacetFloods(t *testing.T) {
	t.Run("feed", feedFlood)
	t.Run("graph", graphFlood)
	t.Run("search", searchFlood)
	t.Run("media", mediaFlood)
}

// facetFlood is several callers at one address, above its rate limit.
func facetFlood(send func(ctx context.Context, web *http.Client, i int) (code string)) *hostileClient {
	return &hostileClient{ip: "127.0.0.2", callers: 16, send: send, pause: 16 * time.Millisecond}
}

// feedFlood posts as one whom thousands follow, and reads feeds; the good
// client reads another feed.
func feedFlood(t *testing.T) {
	p := start(t, nil, allFacets...)
	p.prepareFeed("reader", "author")
	token, web := p.token("feed:post", "graph:write"), clientFrom(t, "127.0.0.9", 2)
	for i := range 2000 {
		if _, err := p.local().Follow(t.Context(), fmt.Sprint("fan", i), "star"); err != nil {
			t.Fatal(err)
		}
	}
	good := func(int) error { return requestOK(t, web, http.MethodGet, p.http+"/feed/reader", "", "") }
	flood := facetFlood(func(ctx context.Context, web *http.Client, i int) string {
		if i%2 == 0 {
			return send(ctx, web, http.MethodGet, fmt.Sprintf("%s/feed/fan%d", p.http, i%2000), "", "")
		}
		return send(ctx, web, http.MethodPost, p.http+"/feed/star", token, fmt.Sprintf(`{"body":"flood %d"}`, i))
	})
	compareLatency(t, "feed: a flood of posts that thousands get, and of reads", good, func() func() {
		end := flood.start(t)
		return func() {
			end()
			awaitCondition(t, p, "all posts to be in the feeds: what is quiet must be", func() bool { return p.metric("mailbox_depth", "") == 0 })
		}
	})
	wantServed(t, flood)
	p.stop(syscall.SIGTERM)
}

// graphFlood follows, and asks for the widest neighbourhoods; the good client
// asks for a small one.
func graphFlood(t *testing.T) {
	p := start(t, nil, allFacets...)
	token, web := p.token("graph:write"), clientFrom(t, "127.0.0.9", 2)
	for i := range 2000 {
		_, err := p.local().Follow(t.Context(), fmt.Sprint("fan", i), "star")
		if err == nil {
			_, err = p.local().Follow(t.Context(), "star", fmt.Sprint("friend", i))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.local().Follow(t.Context(), "ann", "bob"); err != nil {
		t.Fatal(err)
	}
	good := func(int) error { return requestOK(t, web, http.MethodGet, p.http+"/graph/ann", "", "") }
	flood := facetFlood(func(ctx context.Context, web *http.Client, i int) string {
		if i%2 == 0 {
			return send(ctx, web, http.MethodGet, fmt.Sprintf("%s/graph/fan%d?hops=2", p.http, i%2000), "", "")
		}
		return send(ctx, web, http.MethodPut, fmt.Sprintf("%s/graph/rude%d/follows/star", p.http, requestSerial.Add(1)), token, "")
	})
	compareLatency(t, "graph: a flood of follows and of wide neighbourhoods", good, func() func() { return flood.start(t) })
	wantServed(t, flood)
	p.stop(syscall.SIGTERM)
}

// searchFlood searches for what begins like thousands of words; the good client
// searches for one.
func searchFlood(t *testing.T) {
	p := start(t, nil, allFacets...)
	for i := range 300 {
		var text strings.Builder
		for word := range 50 {
			fmt.Fprintf(&text, "w%dx%d ", i, word)
		}
		if _, err := p.local().Put(t.Context(), strings.NewReader(text.String()+" fox"), client.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	awaitCondition(t, p, "all words to be found", func() bool {
		found, err := p.local().Search(t.Context(), "w299x49", client.SearchOptions{})
		return err == nil && found.Total == 1
	})
	web := clientFrom(t, "127.0.0.9", 2)
	good := func(i int) error {
		return requestOK(t, web, http.MethodGet, fmt.Sprintf("%s/search?q=w%dx7", p.http, i%300), "", "")
	}
	flood := facetFlood(func(ctx context.Context, web *http.Client, i int) string {
		return send(ctx, web, http.MethodGet, fmt.Sprintf("%s/search?q=w%d*+w%d*+fox&limit=100", p.http, 1+i%9, 1+i%7), "", "")
	})
	compareLatency(t, "search: a flood of searches for what begins alike", good, func() func() { return flood.start(t) })
	wantServed(t, flood)
	p.stop(syscall.SIGTERM)
}

// mediaFlood has a large picture scaled to a new size each time; the good
// client requests a small one that is ready.
func mediaFlood(t *testing.T) {
	p := start(t, nil, allFacets...)
	large, err := p.local().Put(t.Context(), strings.NewReader(string(bigPicture())), client.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	web := clientFrom(t, "127.0.0.9", 2)
	thumb := func(of b3.Address, width, height int) string {
		return fmt.Sprintf("%s/media/%s?thumb=%dx%d", p.http, of, width, height)
	}
	good := func(int) error { return requestOK(t, web, http.MethodGet, thumb(large.Address, 64, 64), "", "") }
	flood := facetFlood(func(ctx context.Context, web *http.Client, i int) string {
		n := int(requestSerial.Add(1))
		return send(ctx, web, http.MethodGet, thumb(large.Address, 65+n%900, 65+n/900%900), "", "")
	})
	compareLatency(t, "media: a flood of sizes", good, func() func() { return flood.start(t) })
	wantServed(t, flood)
	p.stop(syscall.SIGTERM)
}

// wantServed checks that a flood was one: some of it was served, and the rest
// refused, if it came to that. A slow machine does not reach the rate limit.
func wantServed(t *testing.T, flood *hostileClient) {
	t.Helper()
	codes, served, refused := flood.responseCodes(t), 0, 0
	for code, n := range codes {
		switch {
		case strings.HasPrefix(code, "2"):
			served += n
		case code == "Internal":
			t.Errorf("%d were told %s", n, code)
		default:
			refused += n
		}
	}
	if served == 0 {
		t.Errorf("nothing of the flood was served: %v", codes)
	}
	t.Logf("of the flood %d were served and %d refused", served, refused)
}
