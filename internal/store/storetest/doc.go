// Package storetest is the conformance suite for stores.
//
// Every implementation of store.Store passes [Run]: the one in RAM, and those
// on disk or behind an S3 interface. The checks use only the interface, and
// check what a user of a store would notice: the right bytes under the right
// address, nothing kept of what was rejected, bytes that stay valid while they
// are read, a budget that is never exceeded, and figures that add up after
// every one of these. One that outlives its process passes [RunDurable] too:
// what was acknowledged is there when it is opened again, and nothing else.
//
// A check that cannot fail is worth nothing. The tests of this package run the
// same checks against a small store that breaks one rule at a time, and fail if
// that is not detected.
//
// The package exists for tests. No product code imports it.
package storetest
