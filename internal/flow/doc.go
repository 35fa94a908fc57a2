// Package flow is what moves between tasks: queues, lanes, buses, snapshots
// and permits.
//
// The rule of the house is that every queue is bounded and named, every wait
// has a deadline, and every refusal is typed and counted. This package is that
// rule in code. A service that is written in its words cannot grow a buffer
// that nobody knows of, cannot wait for ever in a place that nobody can see,
// and cannot drop something without a number going up.
//
// # Which one
//
//   - A [Queue] is for work that outlives its request or is shared by several:
//     somebody pushes a job, somebody else runs it. A push never waits. What a
//     full queue does is its [Policy].
//   - A [Fair] queue is shared by classes that do not trust each other: topics,
//     peers, streams. It is bounded in bytes, too, shares them out evenly, and
//     when it is full it takes from the rich.
//   - A [Lane] is the same bound for work that runs on the caller's goroutine,
//     such as a streaming body. A few run, a few wait, the rest are told Busy.
//   - [Permits] bound how much of something is under way, wherever it runs.
//     Running out of them is Backpressure, not Busy.
//   - A [Bus] tells every event to every reader. A slow reader loses the oldest
//     and is told how many.
//   - A [Snapshot] holds the current value of something. Reading it takes no
//     lock; waiting for a change is possible.
//   - A [Mutex] is a lock with a name and a rank, for the few places where locks
//     must nest.
//
// All of them are made with an [Inventory], which knows them from then on.
// Metrics, GET /debug/inventory and docs/_generated/concurrency.md are read
// from it; this package itself knows no metrics library.
//
// # How they work
//
// Each primitive is a small state machine under one short mutex, with an
// explicit list of those who wait. Whoever makes progress possible decides,
// inside the critical section, who gets it, and wakes that one after the
// section. So waiters are served in the order in which they came, a wake-up is
// never spent on one who has left, and no item is lost or delivered twice when
// a close or a cancellation comes at the worst moment. What was handed to a
// waiter in the very moment in which its context ended is returned, without an
// error: the caller has it and must deal with it.
//
// The only places where a goroutine stops or starts another are the three
// methods of [Seam]. Package explore replaces them and runs the same code
// through every interleaving with a bounded number of preemptions.
//
// # What it refuses to do
//
// There is no queue without a bound, no push that waits for room, no goroutine
// of its own, no callback under a lock, and no way to make a part without a
// name: that panics, in the first test that tries.
package flow
