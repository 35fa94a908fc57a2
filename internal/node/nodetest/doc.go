// Package nodetest holds one script of everything that a client can ask of a
// node, and the transcript of what it is answered. Two nodes that are the same to
// their clients have the same transcript, line by line, however they were made:
// with other defaults, or of several processes.
//
// What differs from one run to the next is left out of it: IDs, times, addresses
// of listeners, and the words of errors. Statuses, codes, the headers that
// clients act on, and the bytes are in it.
package nodetest
