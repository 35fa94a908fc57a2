// Package bleve is the search engine of search.Search in Bleve's index
// format, scorch.
//
// With a path, the search index is a folder: segments that are merged and a
// small database that lists the current ones. Without one it is in memory, and
// nothing is opened for writing, not even for a moment.
//
// # Footprint
//
// Importing Bleve's main package starts four goroutines and adds every
// analyser, three other index formats and an expvar to a program, whether or
// not anything is searched. So this package calls the index format, the
// searchers and the collector directly. Texts and queries are both split into
// words by search.EachWord. Until Open is called, nothing runs.
//
// # Compaction
//
// Every batch becomes a segment, and every search looks into every segment. On
// a disk, Bleve merges them; in memory it does not, and a node that gets an
// object now and then would end with a segment for each. So when there are too
// many small ones, or one in which most documents are deleted, their documents
// are put again, together: the old segments are then empty, and are dropped.
// For that, an index in memory keeps the texts, compressed. One on a disk does
// not.
//
// # Full disks
//
// A batch that cannot be written stays in memory, where it can be found, and is
// written when there is space again. Until then Put and Delete fail with
// StoreFull.
//
// # Limits of its scope
//
// It is not a store: its content can be rebuilt from the objects. So a folder
// that is damaged, or of another version, is emptied and rebuilt by the first
// reconciliation. It returns no hit twice, no more than requested, and stops
// when the caller's context ends. A prefix that thousands of words share is
// rejected, not truncated.
package bleve
