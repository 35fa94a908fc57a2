// Package ingress is the hardened HTTP server: everything that stands between
// a stranger's connection and a handler of ours.
//
// # Routes are data
//
// A service lists its [Route]s; a [Table] checks them together. A route says
// who answers, what a caller needs, and what it may cost: the class of its
// deadline, the cap of its body, how many run at a time. The chain enforces
// what the route says, the metrics are labelled by it, and OpenAPI is derived
// from it, so the three cannot disagree. A handler returns an error, and the
// error's kind decides the status, whether a retry makes sense, and when.
//
// # The chain
//
// A request goes through the same steps in the same order, each of which may
// refuse it with a typed problem document, counted by reason:
//
//	accept ─> connection caps ─> warm lane? ─> Host, Origin ─> correlation ID ─> route
//	       ─> body cap ─> decompression ─> rate ─> concurrency ─> authorise ─> deadline ─> handler
//
// Cheap checks come before costly ones, and nothing is queued, decoded or
// waited for on behalf of a caller who may not ask. mounted.answer reads like
// this list.
//
// # Deadlines
//
// Nobody can hold a connection by being slow. A header has five seconds, an
// idle connection sixty. A control route has one deadline for all of it. A
// transfer has a deadline to its first byte and then one that moves on with the
// bytes, in both directions; a byte now and then does not count as movement. A
// stream shows that it lives by a heartbeat and has a few seconds for each
// event. A caller may shorten its deadline, never lengthen it. A refusal does
// not wait for the body that it refuses, nor for a client that does not read
// it.
//
// # The warm lane
//
// For a plain GET of a small thing that is at hand, parsing HTTP is most of the
// work. So on plain loopback listeners a recogniser looks at a connection's
// bytes before net/http does. It knows one shape of request, byte for byte, and
// asks a [Warm] for the answer: one that was prepared beforehand, or one that a
// [Template] makes on the spot, from memory or from a file. It is written with
// one call to the kernel, or two, and without an allocation of the lane's own.
// Anything else goes to net/http with its bytes untouched; when net/http has
// answered, the lane looks at the connection again, so one conditional request
// does not spoil it. The lane runs inside a Read of net/http's, on net/http's
// goroutine. The same bytes get the same answers whether it is on or off:
// FuzzLanes and FuzzConversations hold it to that, down to the order of the
// headers.
//
// Ranges and conditions stay with net/http: a client that has something already
// asks for it once, and the 304 that it gets is as cheap as an answer can be.
//
// # Pages of others
//
// A browser lets a page read what an origin other than its own allows, and no
// more. Here that is nobody, unless the setting http.cors lists the origin; on
// loopback, a request of a page that is not listed is refused altogether,
// because it comes from this very machine without its user's knowing. Every
// answer forbids guessing at types and says who may embed it; over TLS it asks
// to stay with TLS. A handler that serves bytes of strangers marks them with
// [Untrusted].
//
// # Drain
//
// A [Listener] is what a supervise.Service runs: Serve accepts, Drain ends it.
// A drain stops accepting, refuses what is new, lets what runs finish, tells
// event streams and WebSockets to end, closes what is idle at once, and cuts
// the rest when its time is over.
//
// # What it refuses to do
//
// It does not parse HTTP, TLS, WebSocket frames, gzip or zstd: libraries do,
// under caps of ours. It does not decide who may do what: it asks the function
// that it was given. It does not trust a Host, an Origin, a Content-Length, a
// forwarded address or a compressed size. It starts no goroutine: net/http has
// one for each connection, and that is enough. It does not buffer events for
// slow subscribers: they lag on their bus and are told so.
package ingress
