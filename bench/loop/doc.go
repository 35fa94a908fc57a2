// Package loop drives a pipeline of programs that carry messages from a
// publisher to counters, and measures how many arrive in a second.
//
// It is a closed loop. The publisher has permits for a number of messages, the
// window. Each counter reports what has arrived, in steps; what has arrived at
// all of them frees new permits. So no more than a window is ever in flight,
// every queue of the pipeline can be as large as that, and no figure includes
// drops. At the end of a turn all messages must have arrived, each once: a turn
// with a loss is an error and has no figure.
//
// The loop runs in the bench, between the programs. Each step costs two
// wake-ups, for every pipeline alike.
package loop
