// Package supervise knows who runs.
//
// A node is a few dozen long-lived tasks: listeners, pools of workers, a
// committer, janitors. Each of them may fail, and one day all of them must
// stop. In Go, a task that panics takes the whole process with it, a task that
// nobody waits for is never missed, and a task that nobody told to stop goes
// on. So tasks are not started by whoever needs one: the `go` statement is
// written here (and in flow), and everything that runs has an owner, a name, a
// policy for its failure and a place in the order of the shutdown.
//
// # Services, pools and groups
//
// A [Service] is one function, Serve, that runs until it is told to stop. It
// returns nil when it has finished; an error, a panic or runtime.Goexit is a
// failure. A [Pool] is N such functions under one name, or N workers that take
// one [Job] after the other. A [Group] owns tasks that come and go, such as
// the readers of connections: bounded in number, not restarted, but captured
// when they panic, counted, and stopped with their stage. A [Sleeper] is such a
// task that has a goroutine only while it has something to do.
//
// # Failure
//
// What follows on a failure is data, not code: a [Restart] gives the delays,
// with full jitter, how many failures within which window are a crash loop,
// and what to do about one: degrade and keep trying, give up on the service,
// or give up on the node. Each service has its own backoff; one that is in
// trouble does not pause its siblings. A dead worker of a pool is not a crash
// loop: the pool is degraded while it is below strength, and the job that the
// worker had is tried once more or given back, never lost.
//
// # Shutdown
//
// Stages start in order and drain in reverse, each within its budget and all
// within one total. Before anything stops, the event Draining is told, so that
// readiness can flip first. Then, stage by stage, everybody is asked to stop
// and waited for. A service is kept alive, restarts included, until the drain
// reaches its own stage, because the stages before it may need it to finish.
//
// Go cannot end a goroutine from outside. To abort means: cancel its context,
// count it, give it a moment to notice, and if it does not, name it in the
// [Report] as left running and go on. So the drain always ends, within the
// total, and says what it had to leave.
//
// # What can be seen
//
// OnEvent tells the story as it happens, [Supervisor.Status] and
// [Supervisor.Tasks] show the present, [Supervisor.Counts] the totals for
// metrics, and the Report how it ended. All state is under one short mutex
// that is never held while anybody else's code runs, so all of these may be
// called from anywhere, from OnEvent too.
//
// # What it refuses to do
//
// It does not log and knows no metrics library; who observes does that. It
// does not handle signals: whoever gets one calls Shutdown or cancels Run's
// context. It does not know whether a service is ready, only whether it runs;
// who must listen before others start opens its listener before Run. It never
// runs two lives of one service at once, so a task that ignores its context
// can delay its own restart, but not the shutdown. A context that it hands
// out carries no values.
package supervise
