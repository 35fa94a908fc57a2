package ledger

import "micronode/b3"

// Head is the end of the log: the last version and the hash of its header.
// The next version is appended to this one and to no other.
type Head struct {
	Version uint64
	Hash    b3.Address
}

// Record is one version as it is stored: the exact bytes that were hashed and
// signed, never anything that was derived from them.
type Record struct {
	Version       uint64
	Header        []byte // canonical JSON; its BLAKE3 is the version's hash, and it is the leaf of the tree
	Payload       []byte // canonical JSON: the operations; its BLAKE3 is in the header
	Preconditions []byte // canonical JSON: what every item that is touched was before; its BLAKE3 is in the header
}

// Head returns the head of a log that ends with this record.
func (r Record) Head() Head { return Head{Version: r.Version, Hash: b3.Of(r.Header)} }
