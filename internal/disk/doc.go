// Package disk is what the logs of a node stand on: the handful of file
// operations that they need, with predicates for how they fail.
//
// It is a seam. A log is only as reliable as the worst disk it was tested on,
// so tests put one behind it that fails, fills up, lies, is killed in the
// middle of a write, and loses power. Nothing here decides anything: the log
// itself chooses the order of its writes and syncs.
//
// A sync makes the content durable, and what is needed to find it, but not the
// times of the file, which no caller needs.
package disk
