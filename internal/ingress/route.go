package ingress

import (
	"net/http"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
)

// Class says how long a route may take and what counts as being stuck.
type Class uint8

const (
	// Control has one deadline for all of it: small questions, small answers.
	Control Class = iota + 1

	// Transfer has a deadline to the first byte, and then one that moves on
	// with the bytes: a gigabyte may take its time, as long as it moves.
	Transfer

	// Stream has no end. It shows that it lives by a heartbeat, and it ends
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

// Handler answers a request, or returns why it does not. The error becomes a
// problem document, unless the answer has begun; then the connection is cut,
// so that nobody takes half an answer for a whole one.
type Handler func(w http.ResponseWriter, r *http.Request) error

// Route is one line of the table: everything that the server must know to
// accept, bound, authorise, time and count a request before the handler sees
// it. What is documented and what is enforced come from the same line.
type Route struct {
	// Who answers, and to what.

	Service string   // the metrics label of the service that owns the route
	Methods []string // GET stands for HEAD too
	Pattern string   // as http.ServeMux writes it, without method and host: /o/{b3}
	Handler Handler

	// What a caller needs.

	Scope string // the scope of the capability; empty for a read
	Open  bool   // nobody is asked for anything: health, version, the page
	Topic string // the wildcard of Pattern that is a topic, for capabilities that name one

	// What it may cost. Zero stands for the server's default, except that a
	// Concurrency of zero leaves only the server's own bound.

	Class       Class
	BodyCap     int64         // bytes of the request body as sent
	Concurrency int           // how many at a time
	Queued      bool          // its work goes through the service's queue, whose rate is bounded
	Lane        *flow.Lane    // what it waits in before it runs; nil if in nothing
	Deadline    time.Duration // Control: in all; Transfer: to the first byte

	Docs Docs
}

// Docs is what the OpenAPI document says of a route beyond what the route
// itself says.
type Docs struct {
	Summary     string
	Description string
	Params      []Param
	Request     any        // a value of the type that the JSON body decodes into, or Bytes; nil if there is none
	Responses   []Response // those of success; what can go wrong follows from the route and from Kinds
	Kinds       []fault.Kind
}

// Bytes stands for a request body that is no JSON document. It is the media
// type.
type Bytes string

// Octets are bytes of which nothing is known.
const Octets Bytes = "application/octet-stream"

// Param is a query parameter, a header, or a word about a wildcard of the path.
type Param struct {
	Name     string
	In       string // path, query or header
	Type     string // string, integer, number or boolean
	Required bool
	Doc      string
}

// Response is an answer of success.
type Response struct {
	Status int
	Type   string // the media type; empty stands for application/json
	Body   any    // a value of the type that is encoded; nil if it is bytes, or nothing
	Doc    string
}

// changesState reports whether a method is one that is allowed to change
// something. TRACE and CONNECT are not among those a route may have.
func changesState(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	default:
		return true
	}
}
