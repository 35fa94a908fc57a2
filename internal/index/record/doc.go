// Package record defines the types of the index: questions, answers, and the
// signed records of names.
//
// All other packages of the index use these types, so the package has only
// values and rules about them. It does no I/O, reads no clock and has no
// randomness: times and keys are arguments. So every rule can be tested with a
// table.
//
// # Questions
//
// An [ID] is the argument of "resolve": an address or a name. [ParseID] parses
// it, [ID.String] formats it, and each ID has one spelling. Under a prefix (b3:
// or name:) a text means what the prefix says. Without one it is a CID of ours
// or a name, and where something else was most likely meant (a CID with another
// hash, a hash without its prefix, the scheme of a URL) the error says what it
// is and what to write. A [Question] is the same for other nodes: a name in a
// question always includes its owner.
//
// A name is short, printable, in lower case and in Unicode's normal form C, see
// [CheckName]. Nothing is corrected silently: two programs that correct a name
// differently would mean two things by one name.
//
// # Answers
//
// An [Answer] holds providers, and for a name its record. A [Provider] is only
// a claim: that a node has an object and is reachable at these addresses. It is
// unproven until the object has arrived and is verified.
//
// Other networks write addresses as multiaddrs. [ParseMultiaddr] recognises
// those that this node can use, of an overlay listener or a gateway, and
// returns them in the form in which they are dialled; [FormatOverlay] and
// [FormatHTTP] write ours. A host has one spelling here too. An IP address
// disguised as a DNS name, or an IPv4 address as an IPv6 one, is either
// recognised or rejected, so that the policy for dialling is not bypassed.
// [Libp2pID] and [KeyOfLibp2p] convert between the keys of nodes and their
// libp2p IDs.
//
// # Name records
//
// "name:docs" means whatever this node says. "name:docs@<peer>" means what that
// peer says, in a [Name]: a record with the name, its manifest, a sequence
// number, and the start and end of its validity, signed with the key from which
// the peer's ID is derived. So a record proves itself, and any peer may pass it
// on.
//
// On the wire it is a map in CBOR, in RFC 8949's core deterministic encoding:
//
//	{ "key": public key, "sig": signature, "body": bytes }
//	body = { "seq": n, "name": text, "issued": ms, "expires": ms, "manifest": 32 bytes }
//
// The signature is Ed25519 over "micronode name v1", a zero byte and the body.
// A record has exactly one encoding, and [DecodeName] accepts no other: no
// duplicate or unknown keys, no number longer than necessary, no trailing
// bytes. It checks the signature as well, so a Name that came from it is
// genuine. [Name.Check] verifies that it is the record that was asked for and
// that it is valid now.
//
// Of two genuine records the one with the higher sequence number counts
// ([Newer]). The number is the time in milliseconds, or one more than the last
// if that is higher ([NextSeq]); so a node without persistent state is accepted
// again at once, and a clock that was set back is harmless. If two records have
// the same number, the greater bytes win, which is arbitrary, but the same on
// all nodes.
//
// # Errors
//
// Every error is one of package fault: Malformed for what breaks a rule,
// InvalidSig for a signature that does not match or is of another key, Expired
// for a record past its validity. The detail quotes at most the beginning of
// the input, however long it is, and the next step is specific to the case.
package record
