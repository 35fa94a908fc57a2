// Package ingress is the hardened HTTP server: everything between an untrusted
// connection and a handler.
//
// # Routes are data
//
// A service lists its [Route]s; a [Table] checks them together. A route names
// its handler, the scope that a caller needs, and what it may cost: the class
// of its deadline, the cap of its body, how many run at a time. The chain
// enforces the route, the metrics are labelled by it, and OpenAPI is derived
// from it, so the three cannot disagree. A handler returns an error, and the
// error's kind decides the status, whether a retry makes sense, and when.
//
// # The chain
//
// A request goes through the same steps in the same order, each of which may
// refuse it with a typed problem document, counted by reason:
//
//	accept ─> connection caps ─> warm lane? ─> Host, Origin ─> correlation ID ─> route
//	       ─> body cap ─> decompression ─> rate ─> concurrency ─> authorise ─> work rate ─> deadline ─> handler
//
// Cheap checks come before costly ones, and nothing is queued, decoded or
// waited for on behalf of an unauthorised caller. mountedRoute.serve reads
// like this list.
//
// # Deadlines
//
// A slow client cannot hold a connection. A header has five seconds, an idle
// connection sixty. A control route has one deadline for the whole request. A
// transfer has a deadline to its first byte and then one that moves with the
// bytes, in both directions; a byte now and then does not count as progress. A
// stream proves that it is alive by a heartbeat and has a few seconds for each
// event. A caller may shorten its deadline, never lengthen it. When a handler
// overruns its deadline, ingress answers in its place; such handlers are
// counted and bounded. A refusal waits neither for the body that it refuses nor
// for a client that does not read it.
//
// The side that was late decides the status: 408 if the client's own bytes, of
// the header or of the body, were late, and 504 for anything on this side.
//
// # Shares
//
// A client may have as many requests under way as there are free slots, and a
// route four times as many, so that a slot is free for the next client, however
// greedy the others are. Health routes and the local socket need none. When
// there are too many connections, an idle one is closed for a new one, and an
// address opens them at a bounded rate.
//
// # The warm lane
//
// For a plain GET of a small answer that is ready, parsing HTTP is most of the
// work. So on plain loopback listeners a recogniser looks at a connection's
// bytes before net/http does. It knows one shape of request, byte for byte, and
// asks a [WarmSource] for the answer: one that was prepared beforehand, or one
// that a [Template] makes on the spot, from memory or from a file. The answer
// is written with one system call, or two, and the lane allocates nothing.
// Anything else goes to net/http with its bytes untouched; when net/http has
// answered, the lane looks at the connection again, so one conditional request
// does not end its use. The lane runs inside a Read of net/http's, on
// net/http's goroutine. The same bytes get the same answers whether it is on or
// off: FuzzLanes and FuzzConversations check that, down to the order of the
// headers.
//
// Ranges and conditions stay with net/http: a client that has a copy already
// asks once, and the 304 that it gets is as cheap as an answer can be.
//
// # Cross-origin requests
//
// A browser lets a page read from another origin only what that origin allows.
// Here that is nothing, unless the setting http.cors lists the page's origin;
// on loopback, a request of a page that is not listed is rejected altogether,
// because it comes from this very machine without its user's knowledge. Every
// answer forbids content sniffing and says which pages may embed it; over TLS
// it carries Strict-Transport-Security. A handler that serves untrusted bytes
// marks them with [MarkUntrusted].
//
// # Drain
//
// A [Listener] is what a supervise.Service runs: Serve accepts, Drain ends it.
// A drain stops accepting, rejects new requests, lets running ones finish, ends
// event streams and WebSockets, closes idle connections at once, and cuts the
// rest when its time is over.
//
// # What it refuses to do
//
// It does not parse HTTP, TLS, WebSocket frames, gzip or zstd: libraries do,
// under caps of ours. It does not make access decisions: it calls the function
// that it was given. It does not trust a Host, an Origin, a Content-Length, a
// forwarded address or a compressed size. It starts no goroutine: net/http has
// one for each connection, and handlers on HTTP/2 run in a group of the
// supervisor's. It does not buffer events for slow subscribers: they lag on
// their bus and receive the number of lost events.
package ingress
