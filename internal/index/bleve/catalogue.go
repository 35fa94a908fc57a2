package bleve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync/atomic"

	"github.com/blevesearch/bleve/v2/index/scorch"
	api "github.com/blevesearch/bleve_index_api"
	zap "github.com/blevesearch/zapx/v17"
	bolt "go.etcd.io/bbolt/errors"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/index"
)

// Catalogue is an index.Searcher.
type Catalogue struct {
	// set at construction
	path     string // empty in memory
	inMemory bool
	scorch   *scorch.Scorch
	analysis *api.AnalysisQueue
	rebuilt  bool
	disk     *trouble // nil in memory

	closed           atomic.Bool
	documents, bytes atomic.Int64 // as of the last change
}

// mostAnalysts is how many documents are taken apart at a time. They are the
// only goroutines that work on a batch.
const mostAnalysts = 4

// A segment is written into a buffer that Bleve makes as large as it guesses
// that the segment will be: so many documents, each as large as those of the
// batch before. After one long text, a batch of short ones would take half a
// gigabyte, and in memory it would keep it. Without the guess, the buffer grows
// as it is needed.
func init() { zap.NewSegmentBufferAvgBytesPerDocFactor = 0 }

// The format of the documents, and where it is noted.
const format = "1"

var formatKey = []byte("micronode format")

// Open opens the catalogue in a folder, and makes one if there is none; without
// a path, it makes one in memory. One that cannot be used is made anew.
func Open(path string) (*Catalogue, error) {
	c, err := open(path)
	if err == nil || path == "" {
		return c, err
	}
	if errors.Is(err, bolt.ErrTimeout) {
		return nil, &fault.Error{Op: "bleve.open", Kind: fault.Conflict, Detail: "the catalogue is in use by another process", Err: err,
			Next: "Stop the other node, or give this one a --persist folder of its own."}
	}
	if fault.KindOf(err) == fault.StoreFull {
		return nil, err // it may be as good as new when there is room
	}
	if err := empty(path); err != nil {
		return nil, fault.Wrap("bleve.open", err)
	}
	if c, err = open(path); err == nil {
		c.rebuilt = true
	}
	return c, err
}

// Rebuilt reports whether what was there could not be used, so that all has to
// be catalogued again.
func (c *Catalogue) Rebuilt() bool { return c.rebuilt }

// open opens what is there.
func open(path string) (*Catalogue, error) {
	c := &Catalogue{path: path, inMemory: path == "", analysis: api.NewAnalysisQueue(min(mostAnalysts, runtime.GOMAXPROCS(0)))}
	if !c.inMemory {
		c.disk = newTrouble()
	}
	err := c.begin()
	if err == nil {
		return c, nil
	}
	if full := unwritable(err); full.Kind == fault.StoreFull {
		full.Next = "Make room on the disk of the --persist folder, then start the node again."
		err = full
	}
	return nil, fault.Wrap("bleve.open", errors.Join(err, c.Close()))
}

// begin starts Bleve. A panic is one more way in which a damaged folder shows
// itself, and so is a look beyond the end of a file in memory: a full disk, or a
// power cut, may have left the database shorter than it says that it is.
func (c *Catalogue) begin() (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if died := recover(); died != nil {
			err = fmt.Errorf("bleve: %v", died)
		}
	}()
	made, err := scorch.NewScorch(scorch.Name, map[string]any{
		"path": c.path, "bolt_timeout": "1s", "unsafe_batch": true, "asyncErrorCallbackName": callback, "eventCallbackName": callback,
	}, c.analysis)
	if err != nil {
		return err
	}
	if err := made.Open(); err != nil {
		return err
	}
	c.scorch = made.(*scorch.Scorch)
	if !c.inMemory {
		c.disk.watch(c.scorch, c.path)
	}
	return c.checkFormat()
}

// checkFormat refuses documents that another version wrote, and notes that
// these are ours.
func (c *Catalogue) checkFormat() error {
	snapshot, err := c.snapshot()
	if err != nil {
		return err
	}
	noted, err := snapshot.GetInternal(formatKey)
	count, _ := snapshot.DocCount() // it counts what is in memory
	if err = errors.Join(err, snapshot.Close()); err != nil {
		return err
	}
	switch {
	case string(noted) == format:
		return c.measure()
	case noted != nil || count > 0:
		return fault.New("bleve.open", fault.IntegrityFail, "the catalogue has the format %q", noted)
	}
	batch := api.NewBatch()
	batch.SetInternal(formatKey, []byte(format))
	return c.write(batch)
}

// empty removes what is in a folder.
func empty(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, one := range entries {
		if err := os.RemoveAll(filepath.Join(path, one.Name())); err != nil {
			return err
		}
	}
	return nil
}

// snapshot is the catalogue as it is now. It must be closed.
func (c *Catalogue) snapshot() (*scorch.IndexSnapshot, error) {
	if c.closed.Load() {
		return nil, flow.ErrClosed
	}
	reader, err := c.scorch.Reader()
	if err != nil {
		return nil, err
	}
	return reader.(*scorch.IndexSnapshot), nil
}

// Put adds documents, each in the place of one with the same ID.
func (c *Catalogue) Put(documents []index.Document) error {
	batch := api.NewBatch()
	for _, one := range documents {
		batch.Update(newPaper(one, c.inMemory))
	}
	if err := c.apply(batch); err != nil {
		return err
	}
	return fault.Wrap("bleve.put", c.tidy())
}

// Delete takes documents out, and all that are of one of them.
func (c *Catalogue) Delete(ids []string) error {
	batch := api.NewBatch()
	for _, id := range ids {
		batch.Delete(id)
		if err := c.each(fieldOf, id, batch.Delete); err != nil {
			return fault.Wrap("bleve.delete", err)
		}
	}
	if err := c.apply(batch); err != nil {
		return err
	}
	return fault.Wrap("bleve.delete", c.tidy())
}

// apply makes a change. When it returns, searches see it and, with a folder, it
// is on the disk.
func (c *Catalogue) apply(batch *api.Batch) error {
	if c.closed.Load() {
		return fault.Wrap("bleve.put", flow.ErrClosed)
	}
	err := c.write(batch)
	return fault.Wrap("bleve.put", errors.Join(err, c.measure()))
}

func (c *Catalogue) write(batch *api.Batch) error {
	if c.inMemory {
		return c.scorch.Batch(batch)
	}
	return c.disk.write(c.scorch, batch)
}

// measure notes how large the catalogue is.
func (c *Catalogue) measure() error {
	snapshot, err := c.snapshot()
	if err != nil {
		return err
	}
	documents, err := snapshot.DocCount()
	bytes := int64(0)
	for _, segment := range snapshot.Segments() {
		if size := segment.FileSize(); size > 0 {
			bytes += size
		} else {
			bytes += int64(segment.Size())
		}
	}
	c.documents.Store(int64(documents))
	c.bytes.Store(bytes)
	return errors.Join(err, snapshot.Close())
}

// Size is how many documents there are, and about how many bytes they take.
func (c *Catalogue) Size() (documents, bytes int64) { return c.documents.Load(), c.bytes.Load() }

// Has reports whether there is a document of an ID.
func (c *Catalogue) Has(id string) (bool, error) {
	snapshot, err := c.snapshot()
	if err != nil {
		return false, fault.Wrap("bleve.has", err)
	}
	found, err := snapshot.InternalID(id)
	return found != nil, fault.Wrap("bleve.has", errors.Join(err, snapshot.Close()))
}

// IDs lists IDs after one of them.
func (c *Catalogue) IDs(prefix, after string, limit int) ([]string, error) {
	ids, err := c.terms(fieldID, prefix, after, limit)
	return ids, fault.Wrap("bleve.ids", err)
}

// terms lists the terms of a field that begin with a prefix.
func (c *Catalogue) terms(field, prefix, after string, limit int) (terms []string, err error) {
	snapshot, err := c.snapshot()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, snapshot.Close()) }()
	return termsIn(snapshot, field, prefix, after, limit)
}

// termsIn does so in a snapshot. The range begins with the term itself, and
// ends after everything that begins with the prefix: no text has the byte ff.
func termsIn(snapshot *scorch.IndexSnapshot, field, prefix, after string, limit int) (terms []string, err error) {
	dictionary, err := snapshot.FieldDictRange(field, []byte(max(prefix, after)), []byte(prefix+"\xff"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dictionary.Close()) }()
	for len(terms) < limit {
		entry, err := dictionary.Next()
		if err != nil || entry == nil {
			return terms, err
		}
		if entry.Term > after {
			terms = append(terms, entry.Term)
		}
	}
	return terms, nil
}

// each calls do with the ID of every document that has a term in a field.
func (c *Catalogue) each(field, term string, do func(id string)) (err error) {
	snapshot, err := c.snapshot()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, snapshot.Close()) }()
	reader, err := snapshot.TermFieldReader(context.Background(), []byte(term), field, false, false, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	for {
		next, err := reader.Next(nil)
		if err != nil || next == nil {
			return err
		}
		id, err := snapshot.ExternalID(next.ID)
		if err != nil {
			return err
		}
		do(id)
	}
}

// Close stops everything that Open started. Nobody may write meanwhile.
func (c *Catalogue) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	var err error
	if !c.inMemory {
		close(c.disk.closing) // or else it waits for a pause to end
	}
	if c.scorch != nil {
		err = c.scorch.Close()
		c.disk.forget(c.scorch, c.path)
	}
	c.analysis.Close()
	return fault.Wrap("bleve.close", err)
}

// addressOf is what a document leads to whose ID is an address: itself.
func addressOf(id string) (b3.Address, bool) {
	address, err := b3.Parse(id)
	return address, err == nil
}
