// Command mutants shows that the tests detect the removal of the checks that they are for.
//
//	mutants -C .. ../tools/mutants
//
// Each file *.txtar below the folders named describes one way to break the product: which file, which text in it, its
// replacement, and which tests must fail:
//
//	The verifier accepts any payload as the one that was signed.
//	file: internal/registry/verifier.go
//	package: ./internal/registry
//	run: TestForgedPayload
//	-- from --
//	if sum != header.Payload {
//	-- to --
//	if false {
//
// The mutated file replaces the real one with go test -overlay, so the tree is never touched. A mutant that the tests accept has
// survived; one that does not compile, or whose text no longer occurs exactly once, is stale. Either fails the command, with the
// name of the file to look at.
package main
