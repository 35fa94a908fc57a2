// Package ground is where a measurement takes place: it starts programs, knows
// where their files are, watches what the machine does meanwhile, and leaves
// nothing behind.
//
// Whatever is started or made on a Ground belongs to it, and Close ends it all:
// each program by its own process id, with its children, which are in a process
// group of their own; then the folder with all temporary files. Close comes in
// a defer, so it also runs when a measurement fails, panics or is interrupted.
// If the bench itself is killed, the kernel tells the programs to stop.
//
// It does not end what it has not started, and it writes nowhere but in its
// own folder and in .build of the repository.
package ground
