// Package hedge asks several targets one question and takes the first good
// answer.
//
// Among the peers of a network there is always one that is slow and one that is
// dead. Who asks a single peer is as slow as that one; who asks all of them at
// once makes the network slow. Hedging is the middle way: ask a few, and only
// if they are silent for longer than is usual ask a few others. The look-up is
// then about as fast as its second-best wave, and costs little more than the
// first.
//
// # The rules
//
// A look-up has three waves, all under one budget, which is the deadline of the
// context.
//
//	α     starts at once.
//	β     starts when α has been silent for Plan.After, if the hedge budget
//	      allows it; or as soon as every target of α has been heard without
//	      that being enough, which needs no hedge budget.
//	walk  starts when β has been running for Plan.After; or as soon as every
//	      target of both waves has been heard without that being enough.
//
// Heard means that a target has answered, or failed once. If nobody of a wave
// can be asked, because there is nobody in it or every breaker is open, the
// next wave takes its place. Nobody is asked twice under one key, in whatever
// waves it is listed.
//
// Answers are merged: providers by their ID, name records by their sequence
// number. The answer with which the merged one is enough (a quorum of usable
// providers, say) wins, and the others are called off. Run returns at that
// moment. It does not wait for those it called off, and whatever they say then
// is lost.
//
// With Plan.Linger it goes on to listen for a moment, to those whom it has asked
// already: a record of a name may be old, and whoever has the newer one may be
// the slower one. If the owner of the name was asked, its record ends the
// look-up at once, and its silence is waited for as long as that of α. Lingering
// asks nobody more than would have been asked without.
//
// # Failures
//
// A failed target is not a failed look-up, and a target that panics is a failed
// target. Failures that pass (Transient, NoRoute) are retried up to three
// times, after a pause of 50 to 100 ms, if the breaker still lets them and the
// budget has time for it. Nobody waits for retries: for the start of the next
// wave the target has failed already.
//
// Each target has a breaker, which is told once for each question: the answer,
// the failure, or a time-out for who was silent until the budget was used up.
// Who was called off because others were faster is neutral.
//
// # How much, and when
//
// A network that is slow as a whole would be made slower by asking twice as
// many peers. So there is a [Budget]: hedges are at most a share of look-ups.
// When it is used up, β still follows a failed α; it only no longer follows a
// silent one. [Delay] finds the moment at which silence is unusual, from what
// targets took lately.
//
// # What it refuses to do
//
// It does not choose targets, it does not know what a provider is worth, and it
// keeps nothing between look-ups except in Budget and Delay. It starts no
// goroutines of its own: racers are tasks of the group it is given.
package hedge
