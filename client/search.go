package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"micronode/b3"
)

// What a search can find.
const (
	FoundName   = "name"   // a name of the node
	FoundPath   = "path"   // a file of a folder, by its path
	FoundObject = "object" // an object, by the text in it
)

// SearchHit is one thing that was found.
type SearchHit struct {
	ID      string     `json:"id"`   // name:docs, b3:…/a/path, or b3:…
	Kind    string     `json:"kind"` // name, path or object
	Name    string     `json:"name,omitempty"`
	Path    string     `json:"path,omitempty"`
	Address b3.Address `json:"address"` // what it leads to
	Score   float64    `json:"score"`   // the better the higher; it compares hits of one answer only
	Snippet string     `json:"snippet,omitempty"`
}

// SearchResults is what a query finds, the best first.
type SearchResults struct {
	Query string      `json:"query"`
	Total int64       `json:"total"` // how many there are in all
	Hits  []SearchHit `json:"hits"`
}

// SearchOptions says which hits are wanted. The zero value asks for the first
// twenty.
type SearchOptions struct {
	Limit  int // 1 to 100; 20 if not said
	Offset int // how many to pass over
}

// Search finds what a node has by words: in its names, in the paths of its
// folders and in the text of its objects. Words must all be there; "a phrase",
// -without, begin* and name:, path:, text: are understood.
func (c *Client) Search(ctx context.Context, query string, o SearchOptions) (SearchResults, error) {
	values := url.Values{"q": {query}}
	if o.Limit != 0 {
		values.Set("limit", strconv.Itoa(o.Limit))
	}
	if o.Offset != 0 {
		values.Set("offset", strconv.Itoa(o.Offset))
	}
	var found SearchResults
	err := c.newCall(ctx, "client.search", http.MethodGet, "/search?"+values.Encode()).control(ctx, nil, &found)
	return found, err
}
