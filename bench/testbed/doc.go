// Package testbed is the testbed of a measurement: it starts programs, knows
// where their files are, watches the load of the machine, and leaves nothing
// behind.
//
// Whatever is started or made on a [Testbed] belongs to it, and Close ends it
// all: each program by its own process id, with its children, which are in a
// process group of their own; then the folder with all temporary files. Close
// is deferred, so it also runs when a measurement fails, panics or is
// interrupted. If the bench itself is killed, the kernel terminates the
// programs.
//
// It ends nothing that it has not started, and it writes only to its own folder
// and to .build of the repository.
package testbed
