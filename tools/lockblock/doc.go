// Package lockblock reads Go source and enforces the main rule of this module: no mutex is held across anything that can block.
// It is an analyzer in the sense of golang.org/x/tools/go/analysis; cmd/lockblock runs it under go vet.
//
// # What it requires of the code
//
//   - A lock is not held across a wait. A wait is a channel operation, a select without a default, a sleep, waiting for a
//     WaitGroup or a Cond, network and disk I/O, a log line, or a call of anything that does one of these, however deep.
//   - Locks nest only one deep. What is locked while another lock is held is a leaf: a mutex whose declaration says
//     //lockblock:leaf and a reason. Under a leaf nothing is locked at all.
//   - Goroutines have an owner. The go statement, and the functions that hide one, are written in supervise and flow only.
//   - Queues have a name. A channel with room for more than one value is a queue without name, policy or count. The specs of
//     flow carry a Service and a Name.
//
// # How it knows
//
// Each function gets a summary: what it waits for, which locks it takes on the way, which it holds or has released when it
// returns, and which of its arguments it calls. Summaries are passed between packages as facts, so that a message can show the
// whole chain: "calls (*flow.Queue).Pop, which receives from a channel". A lock is the field or the variable, never the instance:
// two values of one type have the same lock, and locking both is a fault. Inside a function the locks that may be held are
// followed through the branches of the control flow graph. A function literal is read by itself, with no lock held, unless it is
// called on the spot, deferred, or given to a function that calls it.
//
// # What it does not do
//
// It does not read the bodies of the standard library: a table names what waits there. It does not check code outside this
// module: from other modules it only takes what their functions wait for, and their locks count as leaves. It does not guess what
// an unknown function value does, with one exception: in this module, a function that takes a context may wait. That holds for
// interface methods declared here and for function values. And it does not prove the absence of deadlocks; it enforces rules
// under which they are hard to write.
//
// # Exceptions
//
// A comment //lockblock:allow with a reason, on the line or alone on the line above, silences the reports about that line. An
// allow without a reason is reported, and so is one that silences nothing. It silences the message, not the fact: a caller that
// holds another lock still gets a report.
package lockblock
