// Package flow is what moves between tasks: queues, lanes, buses, snapshots and
// permits.
//
// The rule of this repository is that every queue is bounded and named, every
// wait has a deadline, and every refusal is typed and counted. This package is
// that rule in code. A service that is built on it has no hidden buffer, no
// hidden wait without end, and drops nothing without counting it.
//
// # Which one
//
//   - A [Queue] is for work that outlives its request or is shared by several
//     requests: one task pushes a job, another runs it. A push never waits. What
//     a full queue does is its [Policy].
//   - A [Signal] is for "something changed": it wakes a task that looks for
//     itself.
//   - A [Fair] queue is shared by classes that do not trust each other: topics,
//     peers, streams. It is bounded in bytes, too, shares them out evenly, and
//     when it is full it evicts items of the class that holds most.
//   - A [Lane] is the same bound for work that runs on the caller's goroutine,
//     such as a streaming body. A few run, a few wait, the rest get Busy.
//   - [Permits] bound how much of something is under way, wherever it runs.
//     Running out of them is Backpressure, not Busy.
//   - A [Bus] delivers every event to every reader. A slow reader loses the
//     oldest and learns how many.
//   - A [Snapshot] holds the current value of something. Reading it takes no
//     lock; waiting for a change is possible.
//   - [Flights] run one call for all callers that ask for the same key at a
//     time, each with its own deadline.
//
// All but the flights are made with an [Inventory], which lists them from then
// on. The tasks and permits of flights are listed where they are made.
// Metrics, GET /debug/inventory and docs/_generated/concurrency.md are read
// from it; this package itself knows no metrics library.
//
// # How they work
//
// Each primitive is a small state machine under one short mutex, with an
// explicit list of waiters. The goroutine that makes progress possible chooses
// the waiter inside its critical section and wakes it afterwards. So waiters
// are served in order of arrival, a wake-up is never spent on a waiter that has
// left, and no item is lost or delivered twice when a close or a cancellation
// comes at the worst moment. What was granted to a waiter at the very moment at
// which its context ended is returned, without an error: the caller has it and
// must deal with it.
//
// The only places where a goroutine stops or starts another are the three
// methods of [Seam]. Package explore replaces them and runs the same code
// through every interleaving with a bounded number of preemptions.
//
// # What it refuses to do
//
// There is no queue without a bound, no push that waits for room, no goroutine
// of its own, no callback under a lock, and no way to make a component without
// a name: that panics, in the first test that tries.
package flow
