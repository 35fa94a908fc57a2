// Package supervise owns the goroutines of a node.
//
// A node is a few dozen long-lived tasks: listeners, pools of workers, a
// committer, janitors. Each of them may fail, and all of them must stop at the
// end. In Go, a task that panics takes the whole process with it, a task
// without a waiter ends unnoticed, and a task that gets no signal to stop never
// stops. So callers do not start tasks themselves: the `go` statement is
// written here (and in flow), and everything that runs has an owner, a name, a
// policy for its failure and a position in the order of the shutdown.
//
// # Services, pools and groups
//
// A [Service] is one function, Serve, that runs until its context ends or its
// Drain is called. It returns nil when it has finished; an error, a panic or
// runtime.Goexit is a failure. A [Pool] is N such functions under one name, or
// N workers that take one [Job] after the other. A [Group] owns tasks that come
// and go, such as the readers of connections: bounded in number, not restarted,
// but captured when they panic, counted, and stopped with their stage. A
// [Sleeper] is such a task that has a goroutine only while it has something to
// do.
//
// # Failure
//
// What follows on a failure is data, not code: a [Restart] has the delays, with
// full jitter, how many failures within which window are a crash loop, and what
// to do about one: degrade and retry, stop the service, or stop the node. Each
// service has its own backoff, which does not pause the others. A dead worker
// of a pool is not a crash loop: the pool is degraded while it is below
// strength, and the job that the worker had is retried once or abandoned with
// an error, never lost.
//
// # Shutdown
//
// Stages start in order and drain in reverse, each within its budget and all
// within one total. Before anything stops, the event Draining is emitted, so
// that readiness can flip first. Then, stage by stage, all tasks are asked to
// stop and waited for. A service is kept alive, restarts included, until the
// drain reaches its own stage, because the stages before it may need it to
// finish.
//
// Go cannot end a goroutine from outside. To abort means: cancel its context,
// count it, wait for a moment, and if it still runs, name it in the [Report] as
// left running and continue. So the drain always ends, within the total, and
// reports what it had to leave.
//
// # What can be seen
//
// OnEvent gets the events as they happen, [Supervisor.Status] and
// [Supervisor.Tasks] show the present, [Supervisor.Counts] the totals for
// metrics, and the Report how it ended. All state is under one short mutex that
// is never held during a callback, so all of these may be called from anywhere,
// from OnEvent too.
//
// # What it refuses to do
//
// It does not log and knows no metrics library; its observer does that. It does
// not handle signals: the signal handler calls Shutdown or cancels Run's
// context. It does not know whether a service is ready, only whether it runs; a
// service that must listen before the others start opens its listener before
// Run. It never runs two tasks of one service at once, so a task that ignores
// its context can delay its own restart, but not the shutdown. Its contexts
// carry no values.
package supervise
