// Package search finds the names of this node, the paths of the files in its
// folders, and the text in its objects by words.
//
//	ObjectAdded, NameChanged, ──> queue search_ingest ──> ingester ──> Engine
//	ObjectRemoved                                         │   ^
//	                                            the store <┘   └ a reconciliation: the store's
//	                                                             list against the engine's
//
// One task, the ingester, does all writes. It is notified of an object or name
// that has changed and checks the current state: an object that the store has
// is read and indexed, one that the store does not have is removed. So
// notifications may be repeated, reordered or unfounded. Those that are lost,
// because the queue was full or the node was down, are found by a
// reconciliation: the lists of the store and of the engine are both in the
// order of their addresses, and are walked side by side.
//
// The content of an address never changes, so nothing is indexed twice. Every
// object that was read has an entry, even if it contains nothing searchable: so
// a reconciliation need not read it again.
//
// # Parts
//
// The search runs in the process of the index, where objects and names are
// known. Package facet serves it to clients. In another process of the same
// node, a facet asks it through [Remote], by routes of the part index.
//
// # Limits of its scope
//
// The search index is not a store: its content can be rebuilt from the objects,
// and snippets are read from the store. The software that keeps it is a driver
// behind [Engine]; package search/bleve is one.
package search
