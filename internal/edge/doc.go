// Package edge serves bytes that were made elsewhere: tiles out of map packs,
// files out of a folder, and objects of allow-listed HTTPS origins, which it
// fetches when they are first asked for and keeps as a shared cache does.
//
// # Three sources, one path
//
// Under /edge/assets/ the first element of the path says where the bytes come
// from: the file name of a mounted pack, a name in the folder edge.assets, or
// an allow-listed host. They are looked for in this order, and anything else is
// refused. Tiles have routes of their own, because a tile is not a file.
//
// # Hits are served, misses are queued
//
// What is here is answered inline, on the connection's own goroutine: packs,
// files, and what the cache holds fresh. A miss takes one slot of the queue
// "work" for its key, however many ask for it, or is refused with Busy. Workers
// pull from the queue and do the fetching; they never see a request or a
// response. The one who asked waits for the result until its own deadline,
// and what was fetched too late is there for the next one.
//
// # The rooms
//
// Package pack mounts map packs: it verifies, watches and swaps them. Package
// fill is the cache and the fetching. Neither knows HTTP routes, metrics or
// readiness; this package does, and little else.
//
// # The warm path
//
// A plain GET of a small tile, file or cached answer is written from memory by
// the warm lane of package ingress. Everything else, ranges and conditions
// included, goes through [ingress.ServeContent].
//
// # What it refuses to do
//
// It fetches nothing that is not on the list, follows no redirect off it, and
// dials no private address unless told to. It runs no speculative fill. It
// trusts neither packs nor origins: sizes, offsets, lengths, codings and
// validators are checked before they are believed.
package edge
