// Package storetest says what a store must do, in a form that can be run.
//
// Every implementation of store.Store passes [Run]: the one in RAM, and those
// on disk or behind an S3 interface. The checks look only through the
// interface, at what a user of a store would notice: the right bytes under the
// right address, nothing kept of what was refused, nobody's bytes pulled away
// while they are read, a budget that is never exceeded, and figures that add up
// after every one of these. One that outlives its process passes [RunDurable]
// too: what was acknowledged is there when it is opened again, and nothing else.
//
// A check that nothing can fail is worth nothing. The tests of this package run
// the same checks against a small store that breaks one rule at a time, and
// fail if it gets away with it.
//
// The package exists for tests. No product code imports it.
package storetest
