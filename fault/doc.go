// Package fault defines the typed errors of micronode.
//
// A node that serves strangers spends much of its life saying no: the queue is
// full, the token has expired, the bytes do not match their address. What sets
// a good refusal apart is that a program can act on it and a person knows what
// to do next. So every error that leaves a package of micronode has a [Kind],
// and everything that depends on the kind (the HTTP status, the exit code of
// the command, whether a retry makes sense, the sentence that names the next
// step) is read from one table in this package. No other place decides any of
// these, so the HTTP interface, the command line, the SDK and the metrics
// cannot disagree.
//
// # Making an error
//
// A [Kind] is itself an error, which makes the common test short:
//
//	if errors.Is(err, fault.Busy) { … }
//
// An [Error] adds what the kind cannot know: the operation, the detail of this
// one case, the cause, and, where it differs from the table's, the next step.
// [New] makes one, [Wrap] adds an operation to an error on its way up and keeps
// its kind:
//
//	return fault.New("store.put", fault.StoreFull, "%d bytes left", left)
//	return fault.Wrap("edge.fill", err)
//
// # Reading an error
//
// [KindOf] classifies any error at all: a nil error has no kind, one of ours
// has the kind it was made with, a context's deadline is [Timeout], a
// context's cancellation is [Canceled], a connection that the peer closed is
// [BrokenPipe], and every unclassified error is [Internal]. A package that may
// not import this one (b3 is on the same floor) gives its errors a method
// FaultCode() string with the code of the kind, and KindOf uses it.
//
// # What it refuses to do
//
// It does not log, it does not count, it does not capture stacks, and it has
// no registry to add kinds to at run time. A new kind is a new row at the end
// of the table: other people's programs depend on the codes, so codes are
// never renamed or reused.
package fault
