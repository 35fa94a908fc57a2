// Package demo shows a small network at work: it starts real nodes on this
// machine, each in a process of its own, plays a list of steps on them, checks
// each step, and prints what it has checked.
//
// The nodes run this same program. Everything is in RAM, the signers' keys too,
// and no node outlives the demo: not after a step that failed, not after
// Ctrl-C, and not after a kill. It refuses to play on nodes that it has not
// started, and writes nothing to disk.
package demo
