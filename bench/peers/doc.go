// Package peers holds what is measured: micronode itself, and its alternatives.
// Each is one small file that defines how it is started, where it listens, and
// how an object is put and requested.
//
// Pub/sub systems carry messages between processes; the others are used over
// HTTP. A pub/sub system is a pipeline of several small programs, and defines
// how each of them is started.
//
// To add one, write a function that returns a Peer, and name it in a row. The
// testbed stops what Start has started; a peer needs no code for that. A
// program that is not in Debian is a Go module of its own below this folder
// (see kubo), so that the bench stays quick to build.
package peers
