// Command micronode runs a node of a content network, and talks to one.
//
// There is one binary. `micronode run` is the node; every other command is a
// client of one, or needs none at all. A command is a struct with flags and a
// method Run; related commands share a file. What all commands share is small:
// a [console] (the streams, and whether they are terminals), [nodeFlags] (the
// node to connect to), and one place where errors are reported.
//
// # Which node
//
// A client command reaches the node of the same user on the same machine over
// its local socket, and needs no token there. MICRO_SOCKET names the socket of
// another one; MICRO_URL names a node elsewhere instead, and MICRO_TOKEN the
// capability for it. --socket overrides both: the command line takes precedence
// over the environment.
//
// # Output
//
// Standard output is for the result of the command only: addresses, tokens,
// the bytes of an object, the banner of a node. With --json it is one JSON
// document, or one a line where there are several. Logs, progress and errors
// go to standard error. Progress is shown to a terminal only, and only for
// large transfers; colours are shown to a terminal only, and not if NO_COLOR
// is set.
//
// An error is two lines: what is wrong, and what to do about it. With --json
// it is one line with the problem document that the HTTP API would send, and
// the exit code in it: a program that asked for JSON should not have to parse
// prose in the one case in which it must react. A stack trace is never shown.
//
// # Exit codes and signals
//
// The exit code is 0 on success, 2 if the command line is invalid, and
// otherwise that of the kind of error (see package fault). A command that was
// given several files continues after one of them failed, and ends with the
// code of the first failure.
//
// The first SIGINT or SIGTERM asks a command to stop: a node drains, a
// transfer is cancelled and leaves no partial file. The second one ends the
// process at once.
//
// # What it refuses to do
//
// It keeps no state, no configuration of its own and no credentials. It writes
// tokens and keys only where the user asks for them. It does not decide what
// is allowed: the node does. And no command asks "are you sure?", because a
// script cannot answer: identity new replaces a key only with --force. Only
// registry approve asks before it signs, unless --yes is given.
package main
