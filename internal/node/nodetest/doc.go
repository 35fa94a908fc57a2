// Package nodetest has one script of everything that a client can request of a
// node, and the transcript of the answers. Two nodes that are the same to their
// clients have the same transcript, line by line, however they were made: with
// other defaults, or of several processes.
//
// What differs from one run to the next is left out: IDs, times, addresses of
// listeners, and the texts of errors. Statuses, codes, the headers that clients
// act on, and the bytes are in it.
package nodetest
