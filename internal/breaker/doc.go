// Package breaker keeps a circuit breaker for every target that a service of
// the node calls: peers and routers of the index, origins of the edge.
//
// A target that is dead, or answers with garbage, costs every caller a
// time-out. A breaker remembers it: after enough failures it opens, and the
// target is not called at all for a while. Then it is half-open and lets a few
// probes pass; if they succeed it closes, and if one fails it opens again.
//
//	          more than Threshold of at least
//	          MinResults results in Window failed
//	closed ───────────────────────────────────▶ open ◀──┐
//	   ▲                                          │     │
//	   │ Probes succeeded                Cooldown │     │ a probe failed
//	   │                                          ▼     │
//	   └────────────────────────────────────── half-open
//
// The state machine is gobreaker's. What this package adds is the table: a
// breaker is made when its target is first called, and the table is bounded,
// because the keys of targets come from the network. When it is full, the least
// recently used closed breaker is evicted, since nothing is lost with it but a
// count. A flood of new targets cannot evict the breakers that are open, unless
// all of them are.
//
// # What counts
//
// The caller reports the result, once. Success is an answer, also the answer
// NotFound. A cancelled call is neutral: it was cancelled because another
// target was faster, or because the caller left, and a cancelled probe makes
// room for another one. Everything else is a failure, above all the time-out. A
// failure counts in the part of the window in which its call began. The window
// slides in six steps.
//
// With [Table.AllowFrom] callers are kept apart. A time-out is then due to the
// target if the caller is alone or others wait in vain, too; while others get
// answers it is due to the question, and is neutral. And where Spec.Trials
// allows it, callers that have not failed in this window or the one before may
// try a target whose breaker is open, a few at a time; an answer closes it. So
// a client whose questions hang closes a target to itself at most.
//
// # The janitor
//
// Breakers advance by themselves when they are used. [Table.Prune] advances
// those of idle targets, so that the numbers of [Table.Counts] are current, and
// removes targets without any state left.
package breaker
