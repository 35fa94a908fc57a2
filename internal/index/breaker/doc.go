// Package breaker keeps a circuit breaker for every target that the index asks.
//
// A peer that is dead, or answers with garbage, costs each look-up the time it
// takes to find that out. A breaker remembers it: after enough failures it
// opens, and the target is not asked at all for a while. Then it is half-open
// and lets a few probes pass; if they succeed it closes, and if one fails it
// opens again.
//
//	          more than Threshold of at least
//	          Least results in Window failed
//	closed ───────────────────────────────────▶ open ◀──┐
//	   ▲                                          │     │
//	   │ Probes succeeded                Cooldown │     │ a probe failed
//	   │                                          ▼     │
//	   └────────────────────────────────────── half-open
//
// The state machine is gobreaker's. What this package adds is the table: a
// breaker is made when its target is first asked, and the table is bounded,
// because the keys of targets come from the network. When it is full, the
// closed breaker that was not used for longest is forgotten, since with it
// nothing is lost but a count. A flood of new targets cannot wash out the
// breakers that are open, unless all of them are.
//
// # What counts
//
// The one who asked says how it went, once. Success is an answer, also the
// answer NotFound. What was cancelled is neutral: it was called off because
// another target was faster, or because the caller left, and a probe that ends
// so makes room for another one. Everything else is a failure, above all the
// time-out. A failure counts in the part of the window in which its question
// was put. The window slides in six steps.
//
// # The janitor
//
// Breakers move on by themselves when they are asked. [Table.Roll] moves on
// those that nobody asks, so that the numbers of [Table.Counts] are those of
// now, and forgets targets of which there is nothing left to know.
package breaker
