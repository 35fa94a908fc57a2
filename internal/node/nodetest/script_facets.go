package nodetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	_ "image/jpeg" // the format of thumbnails
	"image/png"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"micronode/client"
)

// graph makes some accounts follow others.
func (s *script) graph() {
	const write = "graph:write"
	s.send(request{method: "PUT", path: "/graph/bob/follows/ann"})
	for _, edge := range []string{"bob/follows/ann", "bob/follows/ann", "ann/follows/bob", "cem/follows/ann", "c%C3%A9m/follows/ann"} {
		s.sendBytes(request{method: "PUT", path: "/graph/" + edge, scope: write})
	}
	s.send(request{method: "PUT", path: "/graph/bob/follows/bob", scope: write})
	s.sendBytes(request{method: "DELETE", path: "/graph/cem/follows/ann", scope: write})
	s.sendBytes(request{method: "DELETE", path: "/graph/cem/follows/ann", scope: write})
	s.sendBytes(request{method: "GET", path: "/graph/ann?hops=2&direction=followers"})
	s.sendBytes(request{method: "GET", path: "/graph/nobody"})
	s.send(request{method: "GET", path: "/graph/ann?hops=9"})
	for i := range 600 { // more than a page of them
		_, err := s.target.Local.Follow(s.t.Context(), fmt.Sprintf("fan%03d", i), "ann")
		s.must(err)
	}
}

// feed posts something, and reads it back.
func (s *script) feed() {
	post := func(user, body, key string) response {
		a := request{method: "POST", path: "/feed/" + user, body: jsonBody(client.PostRequest{Body: body}), scope: "feed:post"}
		if key != "" {
			a.header = http.Header{"Idempotency-Key": {key}}
		}
		return s.send(a)
	}
	s.send(request{method: "POST", path: "/feed/ann", body: textBody(`{"body":"hi"}`)})
	post("ann", "a storm from the west", "storm")
	post("ann", "a storm from the west", "storm")
	post("ann", "another", "storm")
	post("ann", "", "")
	post("a%2Fb", "hi", "")
	post("ann", strings.Repeat("long ", 4000), "")
	post("bob", "it is here <now> & \u2028 then", "")
	for _, reader := range []struct {
		name string
		want int
	}{{"bob", 2}, {"ann", 2}, {"fan000", 1}, {"fan599", 1}, {"c%C3%A9m", 1}, {"cem", 0}} {
		var feed client.Feed
		s.await(fmt.Sprintf("%s reads %d posts", reader.name, reader.want), func() bool {
			got := s.do(request{method: "GET", path: "/feed/" + reader.name + "?limit=50"})
			s.must(json.Unmarshal(got.body, &feed))
			return len(feed.Items) == reader.want
		})
		slices.SortFunc(feed.Items, func(a, b client.FeedItem) int { return strings.Compare(a.Body, b.Body) }) // they may have the same time
		for _, item := range feed.Items {
			s.note("  %s: %q, score above one: %t", item.Author, item.Body, item.Score > 1)
		}
	}
	s.send(request{method: "GET", path: "/feed/bob?limit=1"})
	s.send(request{method: "GET", path: "/feed/bob?limit=0"})
	s.sendBytes(request{method: "GET", path: "/feed/nobody"})
	s.send(request{method: "DELETE", path: "/graph/bob/follows/ann", scope: "graph:write"})
	var feed client.Feed
	s.must(json.Unmarshal(s.do(request{method: "GET", path: "/feed/bob"}).body, &feed))
	s.note("after that, bob reads %d", len(feed.Items))
}

// search finds a stored object by its words, and no longer after its removal.
func (s *script) search() {
	put := func(words string) client.Object {
		object, err := s.target.Local.Put(s.t.Context(), textBody(words), client.PutOptions{})
		s.must(err)
		return object
	}
	fox := put("The quick brown fox jumps.")
	put("A slow brown bear sleeps.")
	raw, err := client.Manifest{Entries: []client.Entry{{B3: fox.Address, Path: "zoo/reynard.txt", Size: fox.Size, Type: "text/plain"}}}.Encode()
	s.must(err)
	folder, err := s.target.Local.Put(s.t.Context(), bytes.NewReader(raw), client.PutOptions{})
	s.must(err)
	_, err = s.target.Local.SetName(s.t.Context(), "menagerie", folder.Address)
	s.must(err)
	found := func(query string) (results client.SearchResults) {
		got := s.do(request{method: "GET", path: "/search?q=" + url.QueryEscape(query)})
		s.must(json.Unmarshal(got.body, &results))
		return results
	}
	s.await("what was put is found", func() bool {
		return found("brown").Total == 2 && found("reynard").Total == 1 && found("menagerie").Total == 1
	})
	for _, query := range []string{"brown", `"brown fox"`, "brown -bear", "qui*", "path:reynard", "name:menagerie", "text:menagerie", "nothing"} {
		results := found(query)
		s.note("%s finds %d", query, results.Total)
		slices.SortFunc(results.Hits, func(a, b client.SearchHit) int { return strings.Compare(a.ID, b.ID) })
		for _, hit := range results.Hits {
			s.note("  %s %s %q %q %s %q", hit.ID, hit.Kind, hit.Name, hit.Path, hit.Address, hit.Snippet)
		}
	}
	for _, query := range []string{"q=", "q=-x", "q=a*", "q=x&limit=0", "q=x&limit=100&offset=9950", "q=" + strings.Repeat("x", 3000)} {
		s.send(request{method: "GET", path: "/search?" + query})
	}
	s.must(s.target.Local.Delete(s.t.Context(), fox.Address))
	s.must(s.target.Local.DeleteName(s.t.Context(), "menagerie"))
	s.await("what was removed is not found any more", func() bool { return found("quick").Total == 0 && found("menagerie").Total == 0 })
}

// media requests a picture, and a thumbnail of it.
func (s *script) media() {
	var large bytes.Buffer
	s.must(png.Encode(&large, image.NewGray(image.Rect(0, 0, 300, 200))))
	object, err := s.target.Local.Put(s.t.Context(), &large, client.PutOptions{})
	s.must(err)
	at := "/media/" + object.Address.String()
	s.sendBytes(request{method: "GET", path: at})
	s.sendBytes(request{method: "GET", path: at, header: http.Header{"Range": {"bytes=0-9"}}})
	got := s.do(request{method: "GET", path: at + "?thumb=30x30"})
	small, kind, err := image.DecodeConfig(bytes.NewReader(got.body))
	s.must(err)
	s.note("a small one of %d by %d, as %s", small.Width, small.Height, kind)
	s.send(request{method: "GET", path: at + "?thumb=0x0"})
	s.send(request{method: "GET", path: at[:len(at)-2] + "xx"})
}
