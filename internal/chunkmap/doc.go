// Package chunkmap says which bytes of an object another one may have.
//
// A map lists the chunks of an object: how long each is, and the first bytes of
// its hash. Where a chunk ends is decided by the bytes around that place, not by
// their offset, so bytes that are inserted move the ends of a few chunks and
// leave all others as they were. Two versions of a file have most of their chunks
// in common, and [Match] finds them.
//
// A map is a hint. Nothing in it is proven, and nothing needs to be: what is
// copied because of it is verified with the tree of the object, as if a stranger
// had sent it.
package chunkmap
