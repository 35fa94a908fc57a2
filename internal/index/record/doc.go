// Package record is the vocabulary of the index: what can be asked, what an
// answer looks like, and how a node signs what it means by a name.
//
// All other rooms of the index speak in these words, so the package has only
// values and rules about them. It opens nothing, reads no clock and throws no
// dice: times and keys are arguments. That makes every rule in it a line in a
// table that can be tried.
//
// # Asking
//
// An [ID] is what stands behind "resolve": an address or a name. [ParseID]
// reads it, [ID.String] writes it, and there is one spelling for each ID. Under
// a prefix (b3: or name:) a text means what the prefix says. Without one it is a
// CID of ours or a name, and where a person most likely meant something else
// (a CID with another hash, a hash without its prefix, the scheme of a URL) the
// refusal says what it is and what to write. A [Question] is the same thing as
// other nodes are asked it: a name in a question always says whose name it is.
//
// A name is short, printable, in lower case and in Unicode's normal form C, see
// [CheckName]. Nothing is put right in silence, because two programs that put it
// right differently would mean two things by one name.
//
// # Answering
//
// An [Answer] holds providers, and for a name its record. A [Provider] is
// hearsay: somebody says that a node has an object and is found at these
// addresses. Nothing of it is believed before the object has come and is right.
//
// Other networks write addresses as multiaddrs. [ParseMultiaddr] picks out those
// that lead anywhere for us, an overlay listener or a gateway, and gives them in
// the form in which they are dialled; [FormatOverlay] and [FormatHTTP] write
// ours. A host has one spelling here too. An IP address that is dressed up as a
// DNS name, or an IPv4 address as an IPv6 one, is either seen through or not
// taken, so that who decides which addresses may be dialled is not fooled.
// [Libp2pID] and [KeyOfLibp2p] translate between the keys of nodes and the IDs
// by which libp2p knows them.
//
// # Names that travel
//
// "name:docs" means whatever this node says. "name:docs@<peer>" means what that
// peer says, and the peer says it in a [Name]: a record with the name, the
// address that it means, a sequence number, a time from which and one until
// which it counts, signed with the key from which the peer's ID is made. So a
// record proves itself, and anybody may carry it.
//
// On the wire it is a map in CBOR, in RFC 8949's core deterministic encoding:
//
//	{ "key": public key, "sig": signature, "body": bytes }
//	body = { "seq": n, "name": text, "issued": ms, "expires": ms, "manifest": 32 bytes }
//
// The signature is Ed25519 over "micronode name v1", a zero byte and the body.
// A record has exactly one encoding, and [DecodeName] takes no other: no keys
// twice, none that we do not know, no number longer than it must be, nothing
// behind the end. It checks the signature as well, so a Name that came from it
// is genuine. What it cannot know is whether that is the record that was asked
// for and whether it is its time: that is [Name.Check].
//
// Of two genuine records the one with the higher sequence number counts
// ([Newer]). The number is the time in milliseconds, or one more than the last
// if that is higher ([NextSeq]); so a node that keeps nothing over a restart is
// believed again at once, and a clock that was set back does no harm. If two
// records have the same number, the greater bytes win: that means nothing, but
// all nodes decide alike.
//
// # Refusals
//
// Every refusal is an error of package fault: Malformed for what breaks a rule,
// InvalidSig for a signature that does not fit or is somebody else's, Expired
// for what has had its time. The detail quotes at most the beginning of what was
// given, however long it is, and the next step is one for this very case.
package record
