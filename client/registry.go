package client

import (
	"encoding/json"
	"time"

	"micronode/b3"
)

// RegistryHead is the end of a registry's log: the answer of
// GET /registry/head, and of a commit.
type RegistryHead struct {
	Version     uint64     `json:"version"`
	Hash        b3.Address `json:"hash"`
	PayloadB3   b3.Address `json:"payload_b3"`
	CommittedAt time.Time  `json:"committed_at"`
}

// RegistryBase is the version that a proposal must follow.
type RegistryBase struct {
	Version uint64     `json:"version"`
	Hash    b3.Address `json:"hash"`
}

// RegistryKey is a signer: its ID, and the public key as ed25519:BASE64.
type RegistryKey struct {
	SignerID string `json:"signer_id"`
	Public   string `json:"public"`
}

// InitRequest is what POST /registry/init takes: the first set of signers.
type InitRequest struct {
	M    int           `json:"m"`
	Keys []RegistryKey `json:"keys"`
}

// Initialised is the answer of POST /registry/init.
type Initialised struct {
	Registry b3.Address   `json:"registry"` // the hash of version 0: it identifies this log and no other
	Key      string       `json:"key"`      // with which the log signs its checkpoints
	Head     RegistryHead `json:"head"`
}

// ProposalRequest is what POST /registry/proposals takes. Each operation is
// {"op":"put","item":{…}} or {"op":"delete","id":"…"}.
type ProposalRequest struct {
	SchemaVersion string            `json:"schema_version"`
	Ops           []json.RawMessage `json:"ops"`
	Base          *RegistryBase     `json:"base,omitempty"`
	TTL           int64             `json:"ttl_s,omitempty"`
}

// SupersedeRequest is what POST /registry/supersede takes. Without operations,
// the version is undone.
type SupersedeRequest struct {
	SchemaVersion string            `json:"schema_version"`
	Version       uint64            `json:"version"` // with the hash: it must be the head
	Hash          b3.Address        `json:"hash"`
	Reason        string            `json:"reason"`
	Ops           []json.RawMessage `json:"ops,omitempty"`
	TTL           int64             `json:"ttl_s,omitempty"`
}

// Change is one change of a proposal.
type Change struct {
	ID     string          `json:"id"`
	Kind   string          `json:"kind"`
	Change string          `json:"change"` // added, changed or removed
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}

// Proposed is the answer to a proposal. A signer approves it by signing the
// bytes of SignThis, exactly as they are.
type Proposed struct {
	ProposalID string     `json:"proposal_id"`
	PayloadB3  b3.Address `json:"payload_b3"`
	SignThis   []byte     `json:"sign_this"`
	ExpiresAt  time.Time  `json:"expires_at"`
	Diff       []Change   `json:"diff"`
	DiffText   string     `json:"diff_text"` // the same for people
}

// Quorum is how many of how many must approve.
type Quorum struct {
	M int `json:"m"`
	N int `json:"n"`
}

// ProposalStatus is the state of a proposal.
type ProposalStatus string

// The states of a proposal.
const (
	ProposalOpen      ProposalStatus = "open"
	ProposalCommitted ProposalStatus = "committed"
	ProposalExpired   ProposalStatus = "expired"
	ProposalStale     ProposalStatus = "stale" // it is open, but its base has changed: it cannot be committed as it is
)

// Proposal is the answer of GET /registry/proposals/{id}.
type Proposal struct {
	Proposed
	Status     ProposalStatus    `json:"status"`
	Approvals  []string          `json:"approvals"` // the IDs of the signers that have approved
	Quorum     Quorum            `json:"quorum"`
	Version    *uint64           `json:"version,omitempty"` // if it is committed
	Reason     string            `json:"reason,omitempty"`  // if it is stale: why
	Next       string            `json:"next,omitempty"`    // and what to do about it
	Ops        []json.RawMessage `json:"ops,omitempty"`
	Supersedes *Superseded       `json:"supersedes,omitempty"`
}

// Superseded names the version that another one replaces, and why.
type Superseded struct {
	Version uint64     `json:"version"`
	Hash    b3.Address `json:"hash"`
	Reason  string     `json:"reason"`
}

// ProposalList is the answer of GET /registry/proposals: the open and the
// stale ones.
type ProposalList struct {
	Proposals []Proposal `json:"proposals"`
}

// Approval is what POST /registry/approvals/{id} takes.
type Approval struct {
	SignerID string    `json:"signer_id"`
	Algo     string    `json:"algo"` // ed25519
	Sig      []byte    `json:"sig"`
	SignedAt time.Time `json:"signed_at"`
}

// Approved is the answer to an approval.
type Approved struct {
	Status    string `json:"status"` // accepted
	Approvals int    `json:"approvals"`
	Quorum    Quorum `json:"quorum"`
}

// VersionApproval is an approval as a version keeps it.
type VersionApproval struct {
	Approval
	Public string `json:"public"`
}

// SignerSet is a set of signers, and the version since which it is in force.
type SignerSet struct {
	Version uint64        `json:"version"`
	M       int           `json:"m"`
	Keys    []RegistryKey `json:"keys"`
}

// RegistryVersion is the answer of GET /registry/{version}. The items are all
// that there were at this version, or none if they were not requested.
type RegistryVersion struct {
	SchemaVersion string            `json:"schema_version"`
	Version       uint64            `json:"version"`
	Ops           []json.RawMessage `json:"ops"`
	Items         []json.RawMessage `json:"items"`
	PayloadB3     b3.Address        `json:"payload_b3"`
	SignerSet     SignerSet         `json:"signer_set"` // the set that approved it
	Approvals     []VersionApproval `json:"approvals"`
	PrevHash      b3.Address        `json:"prev_hash"`
	Hash          b3.Address        `json:"hash"`
	CommittedAt   time.Time         `json:"committed_at"`
	ProposalID    string            `json:"proposal_id,omitempty"`
	Supersedes    *Superseded       `json:"supersedes,omitempty"`

	// The exact bytes: Header hashes to Hash, Payload to PayloadB3, and
	// Preconditions lists the hashes of the touched items before the change.
	Header        []byte `json:"header"`
	Payload       []byte `json:"payload"`
	Preconditions []byte `json:"preconditions"`
}

// RegistryLogKey is the answer of GET /registry/key.
type RegistryLogKey struct {
	Registry b3.Address `json:"registry"`
	Origin   string     `json:"origin"`
	Key      string     `json:"key"` // as signed notes write verifier keys
}

// RegistryUpdated is the data of an event of the stream.
type RegistryUpdated struct {
	Version     uint64     `json:"version"`
	B3          b3.Address `json:"b3"` // of the header: the hash of the version
	CommittedAt time.Time  `json:"committed_at"`
}
