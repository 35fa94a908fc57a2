//go:build !nobleve

package node

import (
	"micronode/internal/index"
	"micronode/internal/index/bleve"
)

// openSearcher opens what search looks things up in: a folder, or memory
// without a path. It is left out of the program by the build tag nobleve.
func openSearcher(path string) (index.Searcher, error) {
	catalogue, err := bleve.Open(path)
	if err != nil {
		return nil, err // not an interface around nothing
	}
	return catalogue, nil
}
