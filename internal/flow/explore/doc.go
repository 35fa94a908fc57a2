// Package explore runs small concurrent programs in every order.
//
// A race that shows once in a million runs is found by luck, or by looking at
// all the runs. This package does the second. A model is a handful of threads
// that use the real primitives of package flow; the explorer is the [flow.Seam]
// on which they park and wake, so it decides at each step which thread
// continues. It runs the model again and again, each time with another sequence
// of decisions, depth first, until there is none left.
//
// The number of interleavings grows exponentially with the number of steps, but
// bugs are not spread evenly among them: nearly all need only a few switches
// away from a thread that could have continued. So the explorer bounds those
// switches ([Options].Preemptions) and is complete within the bound. Switches
// away from a thread that parks or ends are free.
//
// Time does not exist here. A deadline is a thread that cancels a context:
// [World.Context] returns one, and the explorer tries every moment for it.
//
// A run fails when a [World.Check] does not hold, when a thread panics, or when
// threads are left that no thread can wake: a deadlock or a lost wake-up. The
// [Failure] has the trace of steps in words and the schedule in a short string,
// and [Replay] runs that one schedule again.
//
// What it cannot see: anything that synchronises by other means than flow (bare
// channels, time, the network), and the memory model below the mutex. The first
// would hang a run, so models must not do it; the second is the job of the race
// detector.
package explore
