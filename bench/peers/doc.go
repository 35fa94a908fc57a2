// Package peers holds what is measured: micronode itself, and what one would
// take instead. Each is one small file that says how it is started, where it
// listens, and how an object is put and asked for.
//
// Those that carry letters between processes are carriers; the others are asked
// over HTTP. A carrier is several small programs in a row, and says how each of
// them is started.
//
// To add one, write a function that returns a Peer, and name it in a row. The
// ground stops what Start has started; a peer needs no code for that. A program
// that is not in Debian is a Go module of its own below this folder (see kubo),
// so that the bench stays quick to build.
package peers
