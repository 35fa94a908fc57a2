//go:build nobleve || slim

package node

import (
	"micronode/fault"
	"micronode/internal/search"
)

// openSearcher fails: this program was built without Bleve.
func openSearcher(string) (search.Engine, error) {
	return nil, &fault.Error{Op: "node.facets", Kind: fault.RejectPolicy, Detail: "this program was built without Bleve",
		Next: "Leave facets.search.enabled false, or use the default program: this one is slim."}
}
