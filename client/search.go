package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"micronode/b3"
)

// The kinds of search hits.
const (
	FoundName   = "name"   // a name of the node
	FoundPath   = "path"   // a file of a folder, by its path
	FoundObject = "object" // an object, by the text in it
)

// SearchHit is one result of a search.
type SearchHit struct {
	ID      string     `json:"id"`   // name:docs, b3:…/a/path, or b3:…
	Kind    string     `json:"kind"` // name, path or object
	Name    string     `json:"name,omitempty"`
	Path    string     `json:"path,omitempty"`
	Address b3.Address `json:"address"` // of the content that it refers to
	Score   float64    `json:"score"`   // higher is better; only comparable within one answer
	Snippet string     `json:"snippet,omitempty"`
}

// SearchResults is the answer to a search, the best first.
type SearchResults struct {
	Query string      `json:"query"`
	Total int64       `json:"total"` // how many there are in all
	Hits  []SearchHit `json:"hits"`
}

// SearchOptions select the hits to return. The zero value selects the first
// twenty.
type SearchOptions struct {
	Limit  int // 1 to 100; 0 means 20
	Offset int // number of hits to skip
}

// Search finds names, paths of folders and texts of objects of a node by
// words. All words must match; "a phrase", -without, begin* and name:, path:,
// text: are supported.
func (c *Client) Search(ctx context.Context, query string, o SearchOptions) (SearchResults, error) {
	values := url.Values{"q": {query}}
	if o.Limit != 0 {
		values.Set("limit", strconv.Itoa(o.Limit))
	}
	if o.Offset != 0 {
		values.Set("offset", strconv.Itoa(o.Offset))
	}
	var found SearchResults
	err := c.newCall(ctx, "client.search", http.MethodGet, "/search?"+values.Encode()).doJSON(ctx, nil, &found)
	return found, err
}
