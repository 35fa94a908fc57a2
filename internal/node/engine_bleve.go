//go:build !nobleve && !slim

package node

import (
	"micronode/internal/search"
	"micronode/internal/search/bleve"
)

// openSearcher opens the engine of search: in a folder, or in memory without a
// path. The build tag nobleve leaves it out of the program.
func openSearcher(path string) (search.Engine, error) {
	catalogue, err := bleve.Open(path)
	if err != nil {
		return nil, err // not a non-nil interface around nil
	}
	return catalogue, nil
}
