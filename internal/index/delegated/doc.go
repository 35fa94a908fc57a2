// Package delegated speaks Delegated Routing V1, the way in which IPFS software
// asks a server on the web who has something.
//
// A question is a GET of /routing/v1/providers/{cid}. The answer is a list of
// records: the ID of a libp2p host, the multiaddrs at which it can be reached,
// and the protocols that it speaks there. It comes as one JSON document, or as
// one record a line, each sent as soon as it is found. Package index answers
// such questions, so that Kubo and Helia can use a node as their router; and it
// asks them, of the endpoints that an operator has listed. What both sides need
// is here.
//
// # Two worlds of names
//
// A node of ours is known by its peer ID, which is a hash of its key. libp2p
// knows a host by the key itself, if it is an Ed25519 key, and by a hash of its
// own if not. So a record whose ID holds a key becomes a provider with the peer
// ID of that key: whoever hears of it in two ways sees that it is one. The way
// back is a hash that nobody can undo. Therefore the libp2p ID goes along, as
// the multiaddr /p2p/<id> among the addresses that are of no use to us but may
// be to others. [RecordOf] finds it there, and believes it only if its key is
// the one that the peer ID is the hash of. Without it there is no record.
//
// # The asking side
//
// An [Endpoint] is not trusted. It gets one request, which goes to the host that
// the operator named and to no other, by at most three redirects. Of the answer
// at most 1 MiB, 100 providers and 7 addresses of each are taken. Codings that
// nobody asked for are refused. What is no record, or one of an unknown schema,
// is passed over; what is no JSON is an error, unless records came before it:
// what came whole is used. An answer without records is "nobody" only if it came
// to its end. From the first record on, more are waited for a short while only:
// an endpoint may well search for half a minute, and the one who asks has a
// second.
//
// # The answering side
//
// [ParseCID] reads what is asked for. A CID of another hash is a good question
// to which the answer is nobody; only what is no CID at all is refused. [FormOf] reads which form is wanted, [ParseFilter] which records, and
// [NewPage] begins the answer. In the streamed form each record is on its way
// when [Page.Add] returns. One record that boxo cannot parse spoils a whole list
// for it, so [RecordOf] gives out nothing that it has not checked: IDs and
// multiaddrs of strangers that are not of a form that we know are left out.
//
// # What it refuses to do
//
// It takes no announcements (PUT), knows nothing of IPNS and finds no peers by
// their ID. It does not dial what it is told: addresses are text here, private
// ones too, and whoever dials them decides.
package delegated
