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
	"micronode/internal/search"
)

// Engine is an search.Engine.
type Engine struct {
	// set at construction
	path     string // empty in memory
	inMemory bool
	scorch   *scorch.Scorch
	analysis *api.AnalysisQueue
	rebuilt  bool
	disk     *diskState // nil in memory

	closed           atomic.Bool
	documents, bytes atomic.Int64 // as of the last change
}

// maxAnalyzers is how many documents are analysed concurrently. They are the
// only goroutines that work on a batch.
const maxAnalyzers = 4

// Bleve writes a segment into a buffer of the size that it estimates: so many
// documents, each as large as those of the batch before. After one long text, a
// batch of short ones would take half a gigabyte, and in memory it would keep
// it. Without the estimate, the buffer grows as needed.
func init() { zap.NewSegmentBufferAvgBytesPerDocFactor = 0 }

// The version of the document format, and the key under which it is stored.
const format = "1"

var formatKey = []byte("micronode format")

// Open opens the search index in a folder, creating it if there is none;
// without a path, it creates one in memory. An unusable one is rebuilt.
func Open(path string) (*Engine, error) {
	c, err := open(path)
	if err == nil || path == "" {
		return c, err
	}
	if errors.Is(err, bolt.ErrTimeout) {
		return nil, &fault.Error{Op: "bleve.open", Kind: fault.Conflict, Detail: "the catalogue is in use by another process", Err: err,
			Next: "Stop the other node, or give this one a --persist folder of its own."}
	}
	if fault.KindOf(err) == fault.StoreFull {
		return nil, err // it may be intact when there is space
	}
	if err := removeContents(path); err != nil {
		return nil, fault.Wrap("bleve.open", err)
	}
	if c, err = open(path); err == nil {
		c.rebuilt = true
	}
	return c, err
}

// Rebuilt reports whether the old index was unusable, so that everything has to
// be indexed again.
func (e *Engine) Rebuilt() bool { return e.rebuilt }

// open opens an existing index, or creates one.
func open(path string) (*Engine, error) {
	c := &Engine{path: path, inMemory: path == "", analysis: api.NewAnalysisQueue(min(maxAnalyzers, runtime.GOMAXPROCS(0)))}
	if !c.inMemory {
		c.disk = newDiskState()
	}
	err := c.start()
	if err == nil {
		return c, nil
	}
	if full := writeError(err); full.Kind == fault.StoreFull {
		full.Next = "Free space on the disk of the --persist folder, then restart the node."
		err = full
	}
	return nil, fault.Wrap("bleve.open", errors.Join(err, c.Close()))
}

// start starts Bleve. A damaged folder may also cause a panic, or a fault
// beyond the end of a mapped file: a full disk, or a power cut, may have left
// the database shorter than it declares.
func (e *Engine) start() (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if died := recover(); died != nil {
			err = fmt.Errorf("bleve: %v", died)
		}
	}()
	made, err := scorch.NewScorch(scorch.Name, map[string]any{
		"path": e.path, "bolt_timeout": "1s", "unsafe_batch": true, "asyncErrorCallbackName": callback, "eventCallbackName": callback,
	}, e.analysis)
	if err != nil {
		return err
	}
	if err := made.Open(); err != nil {
		return err
	}
	e.scorch = made.(*scorch.Scorch)
	if !e.inMemory {
		e.disk.register(e.scorch, e.path)
	}
	return e.checkFormat()
}

// checkFormat rejects documents of another version, and stores the version in a
// new index.
func (e *Engine) checkFormat() error {
	snapshot, err := e.snapshot()
	if err != nil {
		return err
	}
	noted, err := snapshot.GetInternal(formatKey)
	count, _ := snapshot.DocCount() // it counts in memory, and does not fail
	if err = errors.Join(err, snapshot.Close()); err != nil {
		return err
	}
	switch {
	case string(noted) == format:
		return e.updateSize()
	case noted != nil || count > 0:
		return fault.New("bleve.open", fault.IntegrityFail, "the catalogue has the format %q", noted)
	}
	batch := api.NewBatch()
	batch.SetInternal(formatKey, []byte(format))
	return e.write(batch)
}

// removeContents removes everything in a folder.
func removeContents(path string) error {
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

// snapshot returns a snapshot of the index. It must be closed.
func (e *Engine) snapshot() (*scorch.IndexSnapshot, error) {
	if e.closed.Load() {
		return nil, flow.ErrClosed
	}
	reader, err := e.scorch.Reader()
	if err != nil {
		return nil, err
	}
	return reader.(*scorch.IndexSnapshot), nil
}

// Put adds documents, each replacing one with the same ID.
func (e *Engine) Put(documents []search.Document) error {
	batch := api.NewBatch()
	for _, one := range documents {
		batch.Update(newScorchDocument(one, e.inMemory))
	}
	if err := e.apply(batch); err != nil {
		return err
	}
	return fault.Wrap("bleve.put", e.compact())
}

// Delete removes documents, and all documents that are Of one of them.
func (e *Engine) Delete(ids []string) error {
	batch := api.NewBatch()
	for _, id := range ids {
		batch.Delete(id)
		if err := e.eachDocument(fieldOf, id, batch.Delete); err != nil {
			return fault.Wrap("bleve.delete", err)
		}
	}
	if err := e.apply(batch); err != nil {
		return err
	}
	return fault.Wrap("bleve.delete", e.compact())
}

// apply applies a batch. When it returns, searches see it and, with a folder,
// it is on the disk.
func (e *Engine) apply(batch *api.Batch) error {
	if e.closed.Load() {
		return fault.Wrap("bleve.put", flow.ErrClosed)
	}
	err := e.write(batch)
	return fault.Wrap("bleve.put", errors.Join(err, e.updateSize()))
}

func (e *Engine) write(batch *api.Batch) error {
	if e.inMemory {
		return e.scorch.Batch(batch)
	}
	return e.disk.writeBatch(e.scorch, batch)
}

// updateSize updates the size of the index.
func (e *Engine) updateSize() error {
	snapshot, err := e.snapshot()
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
	e.documents.Store(int64(documents))
	e.bytes.Store(bytes)
	return errors.Join(err, snapshot.Close())
}

// Size is how many documents there are, and about how many bytes they take.
func (e *Engine) Size() (documents, bytes int64) { return e.documents.Load(), e.bytes.Load() }

// Has reports whether there is a document with an ID.
func (e *Engine) Has(id string) (bool, error) {
	snapshot, err := e.snapshot()
	if err != nil {
		return false, fault.Wrap("bleve.has", err)
	}
	found, err := snapshot.InternalID(id)
	return found != nil, fault.Wrap("bleve.has", errors.Join(err, snapshot.Close()))
}

// IDs lists IDs with a prefix, after a given one.
func (e *Engine) IDs(prefix, after string, limit int) ([]string, error) {
	ids, err := e.terms(fieldID, prefix, after, limit)
	return ids, fault.Wrap("bleve.ids", err)
}

// terms lists the terms of a field that begin with a prefix.
func (e *Engine) terms(field, prefix, after string, limit int) (terms []string, err error) {
	snapshot, err := e.snapshot()
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

// eachDocument calls do with the ID of every document that has a term in a
// field.
func (e *Engine) eachDocument(field, term string, do func(id string)) (err error) {
	snapshot, err := e.snapshot()
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

// Close stops everything that Open started. It must not be called during a
// write.
func (e *Engine) Close() error {
	if e.closed.Swap(true) {
		return nil
	}
	var err error
	if !e.inMemory {
		close(e.disk.closing) // otherwise it waits for persistRetryDelay
	}
	if e.scorch != nil {
		err = e.scorch.Close()
		e.disk.unregister(e.scorch, e.path)
	}
	e.analysis.Close()
	return fault.Wrap("bleve.close", err)
}

// addressInID is the address of a document whose ID is an address.
func addressInID(id string) (b3.Address, bool) {
	address, err := b3.Parse(id)
	return address, err == nil
}
