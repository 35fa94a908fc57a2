package search

import (
	"strings"

	"micronode/b3"
)

// The kinds of hits.
const (
	FoundName   = "name"   // a name of the node
	FoundPath   = "path"   // a file of a folder, by its path
	FoundObject = "object" // an object, by the text in it
)

// Hit is one result of a search.
type Hit struct {
	ID      string     `json:"id"`   // name:docs, b3:…/a/path, or b3:…
	Kind    string     `json:"kind"` // name, path or object
	Name    string     `json:"name,omitempty"`
	Path    string     `json:"path,omitempty"`
	Address b3.Address `json:"address"` // of the content that it refers to
	Score   float64    `json:"score"`   // higher is better; only comparable within one answer
	Snippet string     `json:"snippet,omitempty"`
}

// Results is the answer to a search, the best first.
type Results struct {
	Query string `json:"query"`
	Total int64  `json:"total"` // how many there are in all
	Hits  []Hit  `json:"hits"`
}

// hitOf makes a hit of a match. Its ID determines its kind.
func hitOf(m Match) Hit {
	hit := Hit{ID: m.ID, Address: m.Address, Score: m.Score, Kind: FoundObject}
	if name, is := strings.CutPrefix(m.ID, namePrefix); is {
		hit.Kind, hit.Name = FoundName, name
	} else if _, path, is := strings.Cut(m.ID, "/"); is {
		hit.Kind, hit.Path = FoundPath, path
	}
	return hit
}
