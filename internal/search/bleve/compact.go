package bleve

import (
	"cmp"
	"errors"
	"slices"

	"github.com/blevesearch/bleve/v2/index/scorch"
	api "github.com/blevesearch/bleve_index_api"

	"micronode/internal/search"
)

// When an index in memory is compacted, and how much is put at a time. The last
// two limit the memory that it takes.
const (
	maxSmall            = 16      // small segments
	smallBytes          = 2 << 20 // the limit of a small one
	smallDocument       = 2048
	maxCompactBytes     = 8 << 20
	maxCompactDocuments = 8192
)

// compact merges the documents of small segments until there are few.
func (e *Engine) compact() error {
	for e.inMemory {
		documents, err := e.smallSegmentDocuments()
		if err != nil || documents == nil {
			return err
		}
		batch := api.NewBatch()
		for _, one := range documents {
			batch.Update(newScorchDocument(one, true))
		}
		if err := e.apply(batch); err != nil {
			return err
		}
	}
	return nil
}

// smallSegmentDocuments returns the documents of small segments, if there are
// too many of those, or of one that is mostly empty.
func (e *Engine) smallSegmentDocuments() (documents []search.Document, err error) {
	snapshot, err := e.snapshot()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, snapshot.Close()) }()
	var small []*scorch.SegmentSnapshot
	for _, one := range snapshot.Segments() {
		switch live := one.LiveSize(); {
		case live < smallDocument && one.Size() < smallBytes:
			small = append(small, one)
		case 2*live < one.FullSize():
			return appendLive(nil, one)
		}
	}
	if len(small) <= maxSmall {
		return nil, nil
	}
	slices.SortFunc(small, func(a, b *scorch.SegmentSnapshot) int { return cmp.Compare(a.Size(), b.Size()) })
	for bytes := 0; len(small) > 0; small = small[1:] {
		if bytes += small[0].Size(); bytes > maxCompactBytes || len(documents)+int(small[0].LiveSize()) > maxCompactDocuments {
			break
		}
		if documents, err = appendLive(documents, small[0]); err != nil {
			return nil, err
		}
	}
	return documents, nil
}

// appendLive appends the documents of a segment that are not deleted.
func appendLive(documents []search.Document, from *scorch.SegmentSnapshot) ([]search.Document, error) {
	for live := from.DocNumbersLive().Iterator(); live.HasNext(); {
		number := uint64(live.Next())
		id, err := from.DocID(number)
		if err != nil {
			return nil, err
		}
		one := search.Document{ID: string(id)}
		if address, itself := addressInID(one.ID); itself {
			one.Address = address
		}
		err = from.VisitDocument(number, func(name string, _ byte, value []byte, _ []uint64) bool {
			readField(&one, name, value)
			return true
		})
		if err != nil {
			return nil, err
		}
		documents = append(documents, one)
	}
	return documents, nil
}
