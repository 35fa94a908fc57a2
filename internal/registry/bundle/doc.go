// Package bundle puts one version of a registry, with everything that proves it,
// into one file that can be checked without the registry.
//
// The file goes to an auditor, a court or a colleague on a train. It shows what
// was changed, which signers approved it, and that it is in the log at its
// index. Checking it needs no network, no state and no trust in the maker of
// the file.
//
// # What is in it
//
// One JSON document:
//
//	format       "micronode registry bundle v1"
//	registry     the registry's id
//	key          the verifier key of its log
//	checkpoint   a signed checkpoint that covers the version
//	version      the version that this is about
//	record       its header, payload and preconditions, byte for byte
//	inclusion    the proof that the header is in the checkpoint's tree
//	consistency  the proof that the checkpoint's tree begins with the tree as it
//	             was right after this version
//	signers      every version that changed the signer set, 0 first, up to the set
//	             under which this version was approved: record and inclusion
//
// Bytes and hashes are in base64. White space between the parts does not
// matter; apart from that a bundle has one encoding, and [Verify] detects a
// change of any byte.
//
// # What is checked
//
// The checkpoint's signature. The inclusion of every header that is shown, and
// the consistency. That the hash of version 0 is the registry's id. That each
// change of the signer set was approved by a quorum of the set before it, which
// it names by its hash, and the version by a quorum of the last. That payloads and
// preconditions are those that were signed.
//
// # What a bundle cannot show
//
// Whether the key and the registry are the right ones is not in the file: pass
// what you know in [Trust]. Without that the bundle is only consistent with
// itself, and [Report] says so among its caveats. Nor can it show what is not
// in it: that no change of the signer set was left out between two that are
// shown. For that the whole log has to be verified, which any reader can do
// with its tiles.
package bundle
