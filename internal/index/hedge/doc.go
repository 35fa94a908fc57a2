// Package hedge asks several targets one question and takes the first good
// answer.
//
// Among the peers of a network there is always one that is slow and one that is
// dead. A look-up that asks a single peer is as slow as that one; asking all of
// them at once makes the network slow. Hedging is the middle way: ask a few,
// and only if they are silent for longer than is usual ask a few others. The
// look-up is then about as fast as its second-best wave, and costs little more
// than the first.
//
// # The rules
//
// A look-up has three waves, all under one budget, which is the deadline of the
// context.
//
//	α     starts at once.
//	β     starts when α has been silent for Plan.After: all of it if the
//	      hedge budget allows it, otherwise one target after each Plan.After;
//	      or as soon as every target of α has replied without that being
//	      enough, which needs no hedge budget.
//	walk  starts when β has been running for Plan.After; or as soon as every
//	      target of both waves has replied without that being enough.
//
// A target has replied when it has answered, or failed once. If no target of a
// wave can be asked, because it is empty or every breaker is open, the next
// wave replaces it. No key is asked twice, in whatever waves it is listed.
//
// Answers are merged: providers by their ID, name records by their sequence
// number. The answer that makes the merged one enough (a quorum of usable
// providers, say) wins, and the other queries are cancelled. Run returns at
// that moment. It does not wait for cancelled queries, and their late replies
// are discarded.
//
// With Plan.Linger it waits for a moment longer for the targets that it has
// asked already: a record of a name may be old, and the target with the newer
// one may be slower. If the owner of the name was asked, its record ends the
// look-up at once, and its silence is waited for as long as that of α.
// Lingering starts no further queries.
//
// # Failures
//
// A failed target is not a failed look-up, and a target that panics is a failed
// target. After a temporary failure (Transient, NoRoute) a target is asked again,
// three times in all, after a delay of 50 to 100 ms, if the breaker still allows
// it and the budget has time for it. Waves do not wait for retries: for the start of the
// next wave the target has failed already.
//
// Each target has a breaker, which receives one result per query: the answer,
// the failure, or a time-out for a target that was silent until the budget was
// used up. A query that was cancelled because others were faster is neutral,
// unless it had been silent for Plan.MinSilence: then that is a time-out, too. A
// composite target has no breaker: the targets that it asks have theirs.
//
// # Budget and delay
//
// A network that is slow as a whole would be made slower by asking twice as
// many peers. So there is a [Budget]: hedges are at most a share of look-ups.
// When it is used up, β follows a silent α one target at a time: it may be
// delayed, but not forbidden, or a few silent targets could keep an answer from
// everybody. [Delay] estimates when silence is unusual, from recent response
// times.
//
// # Limits of its scope
//
// It does not choose targets, it does not rank providers, and it keeps no state
// between look-ups except in Budget and Delay. It starts no goroutines of its
// own: queries are tasks of the group it is given.
package hedge
