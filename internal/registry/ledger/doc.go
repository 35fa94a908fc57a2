// Package ledger is the registry's law: what a change is, who may make it, and
// what a version says.
//
// A registry is a list of items (nodes, names, regions, and the set of people
// who sign) and the log of all the changes that were made to it. Each change is
// one version. Nobody changes anything alone: a change is proposed, M of the N
// signers approve it, and then it is committed. The log is kept by a machine
// that nobody has to trust, because a stranger who has the records can go
// through them with [State.Apply] and find every version that the signers did
// not approve, and every one that was altered afterwards.
//
// Everything here is a value or a function of values. There is no clock, no
// randomness, no file, no lock and no goroutine: times and random bytes are
// passed in, records come out. So the committer, the node that opens its log,
// the verifier that goes through it at night, the command that verifies a copy
// offline and the tests all run the same few functions.
//
// # A change
//
// A [Request] holds operations: put this item, delete that id. [State.Propose]
// holds them against the present state and makes a [Proposal]: the payload (the
// operations), the preconditions (what every item touched is now, by its hash),
// and the message that signers sign. The message names the registry, the
// proposal, the signer set, the hashes of payload and preconditions, and when
// it ends. It does not name the version that it will become, so that changes to
// different items do not get in each other's way; a proposal that must be next
// or never says so with its base.
//
// A signer should know what they sign. [Inspect] reads a message and refuses
// whatever is not exactly one; [Message.Diff] makes the readable difference
// from the signed hashes, and not from what the node says about them.
//
// [Proposal.Check] says whether an approval counts. [State.Commit] makes the
// next [Record] of a proposal and the approvals that passed, if there are
// enough of them: as many different keys of the set in force as it asks for. A
// change of the signer set makes all open proposals void, so that the approval
// of a key that was taken out counts for nothing, however old it is.
//
// [State.Supersede] proposes to undo what the head did, or to do something
// else instead, and says why. It works for the head alone: history is not
// rewritten, only continued.
//
// # A version
//
// A record is three texts: header, payload, preconditions. The header has the
// hashes of the other two, that of the header before it, the proposal's message
// field by field, and the approvals. The hash of the header is the version's
// hash, that of version 0 is the registry's id, which every message names; so
// neither a record nor an approval is good for any other registry.
//
// A proposal is committed once. That seems to follow from its preconditions,
// but it does not: if a later version undoes it, they hold again, and its
// approvals can be read in the log by whoever wants to use them a second time.
// So a state remembers which proposals were committed until they have expired.
//
// # Spelling
//
// What is hashed is JSON in the canonical form of RFC 8785, and only the part of
// JSON that nobody reads differently: whole numbers of at most 53 bits, no
// field twice, no field that the schema does not have, names of fields in ASCII,
// strict UTF-8. Requests may be spelled in any way, and may come as CBOR; they
// become the same bytes. Stored bytes may not: what is not canonical is damage.
// The reader and the writer are our own, because a general one would have to be
// asked twice about everything that is refused here; the tests hold them
// against a library that does all of RFC 8785.
//
// # A state
//
// A [State] is what the registry says after a version. It never changes, so
// that readers need no lock and a committer can build several versions on top
// of each other before any of them is stored. A new one shares with the old all
// that was not touched: a commit costs by its own size. [State.Snapshot] writes
// down all that a state knows, in one spelling, and [OpenSnapshot] takes
// nothing else.
//
// # What it refuses to do
//
// It does not keep records (the journal does), it does not know the Merkle tree
// over them (tree does), it does not decide how long a proposal lives, and
// Commit does not verify signatures that Check has verified. Every refusal is a
// fault with a kind that programs can act on and a next step for people.
package ledger
