// Command micronode runs a node of a content network, and talks to one.
//
// There is one binary. `micronode run` is the node; every other command is a
// client of one, or needs none at all. A command is a struct with flags and a
// method Run, and has a file of its own. What they share is small: a [console]
// (the streams, and whether somebody looks at them), a [target] (which node is
// meant), and one place where errors are told.
//
// # Which node
//
// A client command reaches the node of the same user on the same machine over
// its local socket, and needs no token there. MICRO_URL names another node
// instead, and MICRO_TOKEN the capability for it. --socket wins over both: what
// is typed wins over what is in the environment.
//
// # What is printed where
//
// Standard output is for what was asked for, and for nothing else: addresses,
// tokens, the bytes of an object, the banner of a node. With --json it is one
// JSON document, or one a line where there are several. Logs, progress and
// errors go to standard error. Progress is shown to a terminal only, and only
// for what is large; colours are shown to a terminal only, and not if NO_COLOR
// is set.
//
// An error is two lines: what is wrong, and what to do about it. With --json it
// is one line with the problem document that the HTTP API would send, and the
// exit code in it: a program that asked for JSON should not have to read prose
// in the one case in which it must react. Nobody is shown a stack trace.
//
// # How it ends
//
// The exit code is 0 if all that was asked for was done, 2 if the command line
// makes no sense, and otherwise that of the kind of error (see package fault).
// A command that was given several files goes on after one of them failed, and
// ends with the code of the first failure.
//
// The first SIGINT or SIGTERM asks a command to stop: a node drains, a transfer
// is given up and leaves no partial file. The second one ends the process at
// once.
//
// # What it refuses to do
//
// It keeps no state, no configuration of its own and no credentials. It never
// writes a token or a key to a place that it was not told. It does not decide
// what is allowed: the node does. And it has no command that asks "are you
// sure?", because nobody is there to answer in a script; what would destroy
// something wants --force.
package main
