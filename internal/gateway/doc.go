// Package gateway puts the tables of routes of a node's parts into one, wherever
// the parts run.
//
// A part of the node is in this process, or in another one. What can be asked of
// it is the same list in both cases: the table that the part itself has. For a
// part that is here, its routes are mounted as they are, and nothing stands
// between the server and its handlers. For one that is elsewhere, each of its
// routes gets another handler, which passes the request on; everything else in
// the line stays. So what a route lets in is decided here, before anything
// travels: the cap on the body, the scope, the rate, the deadline.
//
// # What is passed on
//
// A request goes on as it came, with these differences. Headers that are meant
// for one connection stay behind. The origin of a page has been judged here and
// is not judged twice. The correlation ID is that of this request. What is left
// of the deadline goes along as Request-Timeout, a little less of it, so that it
// is the part which says what took so long. A capability goes along and is
// verified again by the part; where the caller needed none, because it is the
// user of this machine or because reads are open here, the gateway vouches with
// one of its own, good for this scope and for a minute.
//
// Answers come back as they are: ranges, streams that are flushed as they flow,
// WebSockets, problem documents. Where both have the same header, the part's
// counts: it knows what it sends.
//
// # When a part is away
//
// A request for it is refused with NotReady if nobody listens there, and with
// UpstreamFailed if somebody did and broke off, both with a Retry-After. Nothing
// is remembered: the next request tries again, so a part that comes back is back.
// An answer that breaks off in the middle is cut off here too, so that nobody
// takes half of it for the whole.
//
// # What it refuses to do
//
// It knows no service from inside, keeps no answers, retries nothing that may
// have had its effect, and does not choose between two places of one part.
package gateway
