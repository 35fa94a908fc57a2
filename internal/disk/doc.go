// Package disk is what the logs of a node stand on: the handful of file
// operations that they need, with names for how they fail.
//
// It is a seam. What a log promises is worth as much as the worst disk it was
// tried on, so tests put one behind it that fails, fills up, lies, is killed in
// the middle of a write, and loses power. Nothing here decides anything: in
// which order a log writes and syncs is the log's own affair.
//
// A sync makes the content last, and what is needed to find it, but not the
// times of the file, which nobody asks for.
package disk
