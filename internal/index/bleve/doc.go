// Package bleve keeps the catalogue of index.Library in Bleve's index format,
// scorch.
//
// With a path, the catalogue is a folder: segments that are merged and a small
// database that knows which of them count. Without one it is in memory, and
// nothing is opened for writing, not even for a moment.
//
// # How it stays small
//
// Importing the front door of Bleve starts four goroutines and brings every
// analyser, three other index formats and an expvar into a program, whether or
// not anything is searched. So this package goes in by the side door: it calls
// the index format, the searchers and the collector themselves. What is taken
// apart into words is decided by index.EachWord, the same for texts and for
// queries. Until Open is called, nothing runs.
//
// # Why it tidies up
//
// Every batch becomes a segment, and every search looks into every segment. On
// a disk, Bleve merges them; in memory it does not, and a node that is given an
// object now and then would end with a segment for each. So when there are too
// many small ones, or one in which most documents are gone, their documents are
// put once more, together: the old segments are then empty, and are dropped.
// For that, a catalogue in memory keeps the texts, compressed. One on a disk
// does not.
//
// # When the disk is full
//
// What cannot be written stays in memory, where it can be found, and is written
// when there is room again. Until then Put and Delete refuse with StoreFull.
//
// # What it refuses to do
//
// It is no store: what is in it can be made again from the objects. So a folder
// that is damaged, or of another version, is emptied and begun anew, and the
// library's first round fills it. It gives no hit twice, no more than it is
// asked for, and does not go on for somebody who has left. A beginning that
// thousands of words share is refused, not cut short.
package bleve
