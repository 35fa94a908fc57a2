// Package delegated implements Delegated Routing V1, the HTTP API by which IPFS
// software asks a server for providers.
//
// A question is a GET of /routing/v1/providers/{cid}. The answer is a list of
// records: the ID of a libp2p host, its multiaddrs, and the protocols that it
// speaks there. It is one JSON document, or one record per line, each sent as
// soon as it is found. Package index answers such questions, so that Kubo and
// Helia can use a node as their router; and it sends them to the endpoints that
// an operator has listed. This package has what both sides need.
//
// # Peer IDs
//
// The ID of a micronode peer is a hash of its key. libp2p identifies a host by
// the key itself, if it is an Ed25519 key, and by a hash of its own if not. So
// a record whose ID holds a key becomes a provider with the peer ID of that
// key: the same host from two sources is one provider. The reverse is not
// possible, because a hash cannot be inverted. Therefore the libp2p ID is kept
// as the multiaddr /p2p/<id> in Provider.Other, the addresses that this node
// does not use but others may. [RecordOf] finds it there, and accepts it only
// if the peer ID is the hash of its key. Without it there is no record.
//
// # Client
//
// An [Endpoint] is not trusted. It gets one request, which goes only to the
// host that the operator named, with at most three redirects. Of the answer at
// most 1 MiB, 100 providers and 7 addresses of each are read. Content codings
// that were not requested are rejected. An invalid record, or one of an unknown
// schema, is skipped; invalid JSON is an error, unless records came before it:
// complete records are used. An answer without records means "not found" only
// if it was complete. After the first record, the client waits only a short
// while for more: an endpoint may search for half a minute, and a look-up has
// about a second.
//
// # Server
//
// [ParseCID] parses the question. A CID of another hash is valid and has an
// empty answer; only a text that is not a CID is rejected. [NegotiateEncoding]
// selects the encoding, [ParseFilter] the records, and [NewRecordWriter] starts
// the answer. In a stream each record has been sent when [RecordWriter.Add]
// returns. One record that boxo cannot parse makes it reject the whole list, so
// [RecordOf] returns only what it has checked: IDs and multiaddrs from
// untrusted peers in an unknown form are left out.
//
// # Limits of its scope
//
// It accepts no announcements (PUT), does not implement IPNS and finds no peers
// by their ID. It dials no provider: addresses are text here, private ones too,
// and the caller decides which to dial.
package delegated
