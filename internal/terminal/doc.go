// Package terminal has the texts that commands show to people: of errors, of
// readiness, of numbers in columns, of sockets, and untrusted text that must
// not act on the terminal of its reader.
package terminal
