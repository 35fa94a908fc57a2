// Package ledger holds the rules of the registry: what a change is, which keys
// may approve it, and what a version contains.
//
// A registry is a list of items (nodes, names, regions, and the set of signers)
// and the log of all changes that were made to it. Each change is one version.
// No single key can change anything: a change is proposed, M of the N signers
// approve it, and then it is committed. The machine that keeps the log need not
// be trusted: any reader of the records can replay them with [State.Apply] and
// detect every version that the signers did not approve, and every one that was
// altered afterwards.
//
// Everything here is a value or a function of values. There is no clock, no
// randomness, no file, no lock and no goroutine: times and random bytes are
// passed in, records come out. So the committer, the node that opens its log,
// the background verifier, the command that verifies a copy offline and the
// tests all run the same few functions.
//
// # A change
//
// A [Request] holds operations: put this item, delete that id. [State.Propose]
// checks them against the present state and makes a [Proposal]: the payload
// (the operations), the preconditions (the present hash of every item touched),
// and the message that signers sign. The message names the registry, the
// proposal, the signer set, the hashes of payload and preconditions, and when
// it expires. It does not name the version that it will become, so that changes
// to different items do not conflict; a proposal that must become the next
// version names its base.
//
// A signer must know what it signs. [ParseApprovalMessage] rejects whatever is
// not exactly one message; [ApprovalMessage.Diff] makes the readable difference
// from the signed hashes, and not from what the node says about them.
//
// [Proposal.Check] verifies an approval. [State.Commit] makes the next [Record]
// from a proposal and the approvals that passed, if there are enough of them:
// as many different keys of the set in force as the set requires. A change of
// the signer set invalidates all open proposals, so that an approval by a
// removed key never counts, however old it is.
//
// [State.Supersede] proposes to undo what the head did, or to replace it, and
// gives the reason. It works for the head alone: history is not rewritten, only
// continued.
//
// # A version
//
// A record is three texts: header, payload, preconditions. The header has the
// hashes of the other two, that of the header before it, the proposal's message
// field by field, and the approvals. The hash of the header is the version's
// hash. That of version 0 is the registry's id, which every message names; so
// neither a record nor an approval is valid in any other registry.
//
// A proposal is committed once. Its preconditions alone do not ensure that: if
// a later version undoes it, they hold again, and its approvals are public in
// the log and could be replayed. So a state remembers which proposals were
// committed until they have expired.
//
// # Encoding
//
// What is hashed is JSON in the canonical form of RFC 8785, and only the part
// of JSON that all readers agree on: whole numbers of at most 53 bits, no
// duplicate fields, no field that the schema does not have, field names in
// ASCII, strict UTF-8. Requests may be encoded in any way, and may come as
// CBOR; they become the same bytes. Stored bytes may not: what is not canonical
// is damage. The reader and the writer are our own, because a general library
// accepts much that must be rejected here and its result would have to be
// checked again; the tests compare them with a library that implements all of
// RFC 8785.
//
// # A state
//
// A [State] is the content of the registry after a version. It is immutable, so
// that readers need no lock and a committer can build several versions on top
// of each other before any of them is stored. A new one shares with the old all
// that was not touched: the cost of a commit depends on its own size.
// [State.Snapshot] writes a complete state, in one encoding, and [OpenSnapshot]
// accepts no other.
//
// # What it does not do
//
// It does not keep records (the journal does), it does not know the Merkle tree
// over them (tree does), it does not decide how long a proposal lives, and
// Commit does not verify signatures that Check has verified. Every refusal is a
// fault with a kind that programs can act on and a next step for people.
package ledger
