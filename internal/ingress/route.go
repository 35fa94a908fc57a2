package ingress

import (
	"net/http"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
)

// Class sets how long a route may take and when it counts as stuck.
type Class uint8

const (
	// Control has one deadline for the whole request: small requests, small
	// answers.
	Control Class = iota + 1

	// Transfer has a deadline to the first byte, and then one that moves with
	// the bytes: a gigabyte may take long, as long as it makes progress.
	Transfer

	// Stream has no end. It proves that it is alive by a heartbeat, and it ends
	// when the node drains.
	Stream
)

// String is how the class is written in documents.
func (c Class) String() string {
	switch c {
	case Control:
		return "control"
	case Transfer:
		return "transfer"
	case Stream:
		return "stream"
	default:
		return "unknown"
	}
}

// Handler answers a request, or returns an error. The error becomes a problem
// document, unless the answer has begun; then the connection is cut, so that
// the client does not take half an answer for a whole one.
type Handler func(w http.ResponseWriter, r *http.Request) error

// Route is one line of the table: everything that the server must know to
// accept, bound, authorise, time and count a request before the handler sees
// it. What is documented and what is enforced come from the same line.
type Route struct {
	// The owner, and what it answers to.

	Service string   // the metrics label of the service that owns the route
	Methods []string // GET stands for HEAD too
	Pattern string   // as http.ServeMux writes it, without method and host: /o/{b3}
	Handler Handler

	// What a caller needs.

	Scope  string      // the scope of the capability; empty for a read
	Narrow bool        // a capability for one thing is accepted (mbox:send:jobs for mbox:send); the handler calls AuthoriseNarrowed
	Open   bool        // no credentials are needed: health, version, the page
	Public PublicGroup // of a read: who may, beside known callers; empty if it shows the inside of the node
	Waits  bool        // the handler may wait long for what it answers: the capability is checked while it does, and by StillAuthorised
	Vital  bool        // it answers when all slots are taken: health, version
	Topic  string      // the wildcard of Pattern that is a topic, for capabilities that name one

	// What it costs: Cheap is for a GET that is answered from memory or from a
	// file of this machine. It is not counted against limits.rate, and it waits
	// for its turn where others are refused: see FairLane. What such a route
	// spends beyond that, it asks Spend for.
	Cheap bool

	// What it may cost. Zero stands for the server's default, except that a
	// Concurrency of zero leaves only the server's own bound.

	Class       Class
	BodyCap     int64         // bytes of the request body as sent
	Concurrency int           // how many at a time
	Queued      bool          // its work goes through the service's queue, whose rate is bounded
	Lane        *flow.Lane    // a lane to enter before the handler runs; nil for none
	Deadline    time.Duration // Control: in all; Transfer: to the first byte

	Docs Docs
}

// Docs is what the OpenAPI document says of a route beyond the route's other
// fields.
type Docs struct {
	Summary     string
	Description string
	Params      []Param
	Request     any        // a value of the type that the JSON body decodes into, or Bytes; nil if there is none
	Responses   []Response // those of success; errors follow from the route and from Kinds
	Kinds       []fault.Kind
	Content     bool // it answers by ServeContent: with ranges and conditions
}

// Bytes stands for a request body that is not a JSON document. It is the media
// type.
type Bytes string

// Octets are bytes of unknown type.
const Octets Bytes = "application/octet-stream"

// Param describes a query parameter, a header, or a wildcard of the path.
type Param struct {
	Name     string
	In       string // path, query or header
	Type     string // string, integer, number or boolean
	Required bool
	Doc      string
}

// Response is an answer of success.
type Response struct {
	Status int    // zero stands for every status that is not listed: what another server answered
	Type   string // the media type; empty stands for application/json
	Body   any    // a value of the type that is encoded; nil if it is bytes, or nothing
	Doc    string
}

// showsInside reports whether a route is a read that needs credentials on
// loopback too. A read of which nobody has said who may is one.
func (r Route) showsInside() bool { return r.Scope == "" && !r.Open && r.Public == "" }

// changesState reports whether a method may change something. A route cannot
// have TRACE or CONNECT.
func changesState(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	default:
		return true
	}
}
