// Package edge serves bytes that were made elsewhere: tiles out of map packs,
// files out of a folder, objects by address or name, and objects of
// allow-listed HTTPS origins, which it fetches at the first request and keeps
// as a shared cache does.
//
// # One path for all sources
//
// Under /edge/assets/ the first element of the path says where the bytes come
// from: the file name of a mounted pack, a name in the folder edge.assets, an
// address (b3:…) or a name (name:…), or an allow-listed host. They are tried in
// this order, and anything else is refused. Tiles have routes of their own,
// because a tile is not a file.
//
// # Hits are served, misses are queued
//
// Hits are answered inline, on the connection's own goroutine: packs, files,
// and fresh cache entries. A miss takes one slot of the queue "work" for its
// key, however many requests wait for it, or is rejected with Busy. Workers
// pull from the queue and fetch; they never see a request or a response. The
// request waits for the result until its own deadline, and a result that
// arrives later serves the next request.
//
// # Packages
//
// Package pack mounts map packs: it verifies, watches and swaps them. Package
// fill is the cache and the fetching. Neither knows HTTP routes, metrics or
// readiness; this package does, and little else.
//
// # The warm path
//
// A plain GET of a small tile or cached answer is written from memory by the
// warm lane of package ingress. Everything else, ranges and conditions
// included, goes through [ingress.ServeContent].
//
// # What it refuses to do
//
// It fetches nothing that is not on the list, follows no redirect off it, and
// dials no private address unless configured to. It runs no speculative fill.
// It trusts neither packs nor origins: sizes, offsets, lengths, codings and
// validators are checked before use.
package edge
