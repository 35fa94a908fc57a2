// Package packtest writes map packs for tests and benchmarks.
//
// A reader of untrusted files is only as good as the files it was tested with.
// This package writes them: [PMTiles] and [MBTiles] make archives of many
// shapes, valid and damaged, from a short description. The same description
// makes the same file every time, and [PMSpec.Contents] and [TileBytes] say
// what has to be found in it, so that nothing has to be kept in the repository.
//
// It shares no code with the readers, on purpose: it numbers tiles by drawing
// the Hilbert curve, and lays out headers and directories by itself, so that a
// misreading of the format would have to be made twice to go unnoticed. In
// interop/, the reference tools check what it writes.
//
// It is support code. It panics where a test would only fail later, and only
// tests and the modules bench/ and interop/ import it.
package packtest
