// Package amnesia makes sure that what the node forgets is gone.
//
// A node in amnesia keeps everything in memory and writes nothing. That promise
// is easily broken by a library that unpacks something into /tmp. So it is
// enforced: the process drops the right to write, and from then on the kernel
// refuses. And what was in memory is zeroed when its time has come.
//
// # Confinement
//
// [Confine] is called once, by the command that runs a node, before it opens a
// listener. It uses Landlock, with nothing but the write class of file rights:
// opening for writing, truncating, making, removing and moving files and
// folders of any kind. Reading and executing stay open, so that packs,
// certificates and the config can be read again; there are no rules about the
// network, and none about signals and sockets of other processes. What may be
// written is:
//
//   - descriptors that were open before, such as the terminal or a log pipe;
//   - /dev/null and /dev/tty, if they are the devices that they should be;
//   - with persistence, the folders that the operator named, including moves
//     between them;
//   - in the folders of [Plan].Sockets, sockets, and nothing else.
//
// The rules hold for every thread of the process and for what it starts, and
// they cannot be undone. Landlock does not cover a file's metadata (mode,
// owner, times, extended attributes), so that much could still change, and
// ioctls on devices are not handled: a right to write is checked when a device
// is opened. Landlock must be of version 3 (Linux 6.2) or newer, because older
// ones do not see a file being truncated.
//
// Core dumps are off, in both ways that there are. The limit RLIMIT_CORE keeps
// the kernel from writing a core file. But a core_pattern that pipes cores to a
// program, as most distributions have it, is not bound by the limit, so the
// process is made undumpable too. That has a price: other processes of the same
// user can no longer attach a debugger or read /proc/PID/mem, fd or environ,
// which also keeps them from reading our keys. Root still can. The mode [Off]
// leaves all of this unchanged, for a session with a debugger.
//
// [Probe] reports what this machine supports, without confining anything.
// [TryWrites] tries to write, in folders where the file permissions would allow
// it, and reports what the kernel said.
//
// # Memory
//
// An [Arena] is memory outside the Go heap: the collector does not move it or
// copy it, it is locked into RAM if the limit allows, left out of dumps, and
// has a page before and after it that cannot be touched. An [ArenaSet] lists
// all arenas of a process, zeroes them at the end and reads them back to verify
// that. A [Purger] runs what else must be forgotten, on a timer.
//
// The promise is about these buffers. Ed25519 private keys are ordinary heap
// values: the standard library of Go 1.26 caches what it derives from a key by
// the address of its heap object, and crashes on a key in foreign memory. So
// the node's identity is not locked: it may be swapped out, and it is zeroed
// when the node is closed. What is locked is the root of capabilities, and
// nothing else: not objects, messages, names or cached answers, not the keys of
// TLS sessions and certificates, and not what libraries copy while they
// compute. To keep those from the disk, turn swap off or encrypt it. A slice
// from an arena must not be grown by append, which would copy it to the heap.
//
// # What it refuses to do
//
// It does not encrypt memory, does not hide anything from root, and does not
// guess: where the kernel lacks something, the result says what, and what to do
// about it. It writes nothing itself, except in TryWrites.
package amnesia
