// Package observe makes a node observable: metrics, readiness, logs, traces,
// the build, and the admin plane that shows them.
//
// # Counting happens elsewhere
//
// Queues, lanes, buses and permits count what happens to them, and so does the
// supervisor for its tasks; they do it with plain integers and know of no
// metrics library. This package reads those counts at scrape time. So a scrape
// shows every component that exists, a new queue is on the dashboard the moment
// it is made, and no count can be forgotten. [Metrics] owns the one registry;
// [Metrics.Attach] connects it to its [Sources].
//
// What only a service knows (a time-out of its disk, the latency of its routes)
// it counts itself, in the [Instruments] it gets from [Metrics.For]. They carry
// the label "service", whose values are a fixed set. A service outside the set
// is refused: For panics, and a scrape that meets a component of such a service
// fails and names it.
//
// # Readiness is a table
//
// [Readiness] has a row for each thing that the node depends on. Its owner sets
// up, degraded or down, with the reason and the next step; services and pools
// are seen through the supervisor; the phase of the node is a row too. From the
// rows follow three answers: reads are served, writes are served, something is
// degraded. Writes go first and come back last. The verdict is computed on each
// request and so cannot be stale, and a row that was never set is down, because
// silence is not health.
//
// # Logs, correlation IDs, errors
//
// [Logs] are those of log/slog. Each line carries the correlation ID of its
// ctx, and secrets are removed in two ways: by the name of an attribute, and by
// their shape in the middle of a text. A type that hides itself, as a secret of
// the configuration does, stays hidden. The same ID is in the X-Corr-ID header
// and in the body of every refusal, which [WriteProblem] writes from a fault.
//
// # Traces
//
// [Tracing] sends spans to an OpenTelemetry collector, if one is configured,
// and can be switched while the node runs. Off, it costs a load of a pointer.
// On, a dead collector costs the spans and nothing else. Like an engine, it can
// be left out of the build, with the tag notrace.
//
// # What it refuses to do
//
// It starts no goroutine of its own: its watchers run in tasks of the caller.
// It holds no global state: no default registry, no default tracer provider, no
// default logger. It does not decide what is a metric of a service, and it
// never puts a peer, an address, a key or a path into a label.
package observe
