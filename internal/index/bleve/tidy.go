package bleve

import (
	"cmp"
	"errors"
	"slices"

	"github.com/blevesearch/bleve/v2/index/scorch"
	api "github.com/blevesearch/bleve_index_api"

	"micronode/internal/index"
)

// When a catalogue in memory is tidied, and how much is put anew at a time. The
// last two bound the memory that it takes.
const (
	mostSmall     = 16      // small segments
	smallBytes    = 2 << 20 // what counts as one
	smallDocument = 2048
	tidyBytes     = 8 << 20
	tidyDocuments = 8192
)

// tidy puts the documents of small segments together until there are few.
func (c *Catalogue) tidy() error {
	for c.inMemory {
		documents, err := c.scattered()
		if err != nil || documents == nil {
			return err
		}
		batch := api.NewBatch()
		for _, one := range documents {
			batch.Update(newPaper(one, true))
		}
		if err := c.apply(batch); err != nil {
			return err
		}
	}
	return nil
}

// scattered is the documents of small segments, if there are too many of those,
// or of one that is mostly empty.
func (c *Catalogue) scattered() (documents []index.Document, err error) {
	snapshot, err := c.snapshot()
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
	if len(small) <= mostSmall {
		return nil, nil
	}
	slices.SortFunc(small, func(a, b *scorch.SegmentSnapshot) int { return cmp.Compare(a.Size(), b.Size()) })
	for bytes := 0; len(small) > 0; small = small[1:] {
		if bytes += small[0].Size(); bytes > tidyBytes || len(documents)+int(small[0].LiveSize()) > tidyDocuments {
			break
		}
		if documents, err = appendLive(documents, small[0]); err != nil {
			return nil, err
		}
	}
	return documents, nil
}

// appendLive reads the documents of a segment that are not deleted.
func appendLive(documents []index.Document, from *scorch.SegmentSnapshot) ([]index.Document, error) {
	for live := from.DocNumbersLive().Iterator(); live.HasNext(); {
		number := uint64(live.Next())
		id, err := from.DocID(number)
		if err != nil {
			return nil, err
		}
		one := index.Document{ID: string(id)}
		if address, itself := addressOf(one.ID); itself {
			one.Address = address
		}
		err = from.VisitDocument(number, func(name string, _ byte, value []byte, _ []uint64) bool {
			read(&one, name, value)
			return true
		})
		if err != nil {
			return nil, err
		}
		documents = append(documents, one)
	}
	return documents, nil
}
