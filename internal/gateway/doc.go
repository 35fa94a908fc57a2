// Package gateway mounts the routes of all parts of a node in one table,
// wherever the parts run.
//
// A part of the node runs in this process, or in another one. Its routes are
// the same list in both cases: the table of the part itself. The routes of a
// local part are mounted as they are, with nothing between the server and its
// handlers. Each route of a remote part gets another handler, which forwards
// the request; the rest of the route stays. So the limits of a route are
// enforced here, before anything is sent: the cap on the body, the scope, the
// rate, the deadline.
//
// # What is forwarded
//
// A request is forwarded as it came, with these differences. Hop-by-hop headers
// are dropped. The Origin of a page has been checked here and is not sent. The
// correlation ID is that of this request. The rest of the deadline is sent as
// Request-Timeout, slightly shortened, so that the part's own time-out arrives
// in time. The capability of the caller stays here, where it was verified; the
// gateway sends one of its own, for this scope, this path and a minute, which
// the part verifies again.
//
// # How a part is authenticated
//
// On a local socket the kernel names its owner. At a URL, the server must prove
// on each new connection that it has the secret which the parts of a node
// share, before anything else is sent ([ProofRoute]).
//
// Answers come back unchanged: ranges, streams that are flushed as they flow,
// WebSockets, problem documents. Where both sides set the same header, the
// part's is used: it knows what it sends.
//
// # When a part is down
//
// A request for it fails with NotReady if nothing listens there, and with
// UpstreamFailed if the part closed the connection, both with a Retry-After. No
// state is kept: the next request tries again, so a part that returns is used
// at once. An answer that breaks off in the middle is cut off here too, so that
// the client does not take half of it for the whole.
//
// # What it refuses to do
//
// It does not know the services' internals, caches no answers, never retries
// what may have had its effect, and does not choose between two addresses of
// one part.
package gateway
