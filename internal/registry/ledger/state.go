package ledger

import (
	"bytes"
	"iter"
	"slices"
	"strings"
	"time"

	iradix "github.com/hashicorp/go-immutable-radix/v2"

	"micronode/b3"
)

// State is the content of the registry after one version. It is immutable: a
// commit makes a new one that shares with the old all that was not touched, at
// a cost that depends on the change and not on the size of the registry. It is
// safe for concurrent use. The nil State is the one before version 0; only
// Apply and Replay accept it.
type State struct {
	registry    b3.Address
	head        Head
	committedAt time.Time
	items       *iradix.Tree[*Item] // by id

	signers        *activeSigners
	signerVersions []uint64     // the versions that changed the signer set, 0 first
	retired        []retiredKey // sorted by key

	headPriorItems []priorItem   // the items that the head touched as they were before it, sorted by id
	used           usedProposals // the proposals that were committed and have not expired
}

// retiredKey is a key that was in the signer set and is no longer.
type retiredKey struct {
	public   PublicKey
	signerID string
	version  uint64 // that removed it
}

// Registry is the registry's id: the hash of version 0.
func (s *State) Registry() b3.Address { return s.registry }

// Head is the last version.
func (s *State) Head() Head { return s.head }

// CommittedAt is when the last version was committed.
func (s *State) CommittedAt() time.Time { return s.committedAt }

// Len is the number of items.
func (s *State) Len() int { return s.items.Len() }

// Item returns the item with an id.
func (s *State) Item(id string) (Item, bool) {
	item, ok := s.items.Get([]byte(id))
	if !ok {
		return Item{}, false
	}
	return *item, true
}

// Items iterates over all items, sorted by id.
func (s *State) Items() iter.Seq[Item] {
	return func(yield func(Item) bool) {
		s.items.Root().Walk(func(_ []byte, item *Item) bool { return !yield(*item) })
	}
}

// Signers is the signer set in force.
func (s *State) Signers() SignerSet {
	return SignerSet{M: s.signers.set.M, Keys: slices.Clone(s.signers.set.Keys)}
}

// SignersVersion is the version that put the signer set in force.
func (s *State) SignersVersion() uint64 { return s.signerVersions[len(s.signerVersions)-1] }

// SignerVersions lists the versions that changed the signer set, 0 first.
func (s *State) SignerVersions() []uint64 { return slices.Clone(s.signerVersions) }

// Retired returns the version in which a key was removed from the signer set,
// if it was in one and is no longer.
func (s *State) Retired(public PublicKey) (version uint64, ok bool) {
	i, found := slices.BinarySearchFunc(s.retired, retiredKey{public: public}, compareRetiredKeys)
	if !found {
		return 0, false
	}
	return s.retired[i].version, true
}

func compareRetiredKeys(a, b retiredKey) int { return bytes.Compare(a.public[:], b.public[:]) }

// Committed returns the version as which a proposal was committed, if it was.
// It is remembered until the proposal expires.
func (s *State) Committed(proposal string, at time.Time) (version uint64, ok bool) {
	id, ok := parseProposalID(proposal)
	if !ok {
		return 0, false
	}
	return s.used.find(id, s.clampTime(at))
}

// priorItemsOf looks up what a change would touch, and rejects operations that
// change nothing or do not do what they say.
func (s *State) priorItemsOf(ops []Op) ([]priorItem, error) {
	prior := make([]priorItem, 0, len(ops))
	for _, op := range ops {
		item, _ := s.items.Get([]byte(op.ID))
		if err := checkOp(item, op); err != nil {
			return nil, err
		}
		prior = append(prior, priorItem{op.ID, item})
	}
	slices.SortFunc(prior, func(a, b priorItem) int { return strings.Compare(a.id, b.id) })
	return prior, nil
}

// advance returns the state after a version that was verified.
func (s *State) advance(head Head, h *Header, ops []Op, prior []priorItem) *State {
	next := *s
	next.head, next.committedAt, next.headPriorItems = head, h.CommittedAt, prior
	if id, ok := parseProposalID(h.ProposalID); ok {
		next.used = s.used.with(usedProposal{id, h.ExpiresAt.UnixMilli(), head.Version}, h.CommittedAt)
	}
	items := s.items.Txn()
	for _, op := range ops {
		if op.Delete {
			items.Delete([]byte(op.ID))
			continue
		}
		item := op.Item
		items.Insert([]byte(op.ID), &item)
		if op.ID == SignersID {
			next.activateSigners(newActiveSigners(item))
		}
	}
	next.items = items.CommitOnly()
	return &next
}

// activateSigners puts a signer set in force. The slices are allocated again,
// because the state before still has the old ones.
func (s *State) activateSigners(c *activeSigners) {
	version := s.head.Version
	s.signerVersions = append(slices.Clone(s.signerVersions), version)
	var out []retiredKey
	for _, r := range s.retired {
		if !c.set.HasKey(r.public) {
			out = append(out, r)
		}
	}
	if s.signers != nil {
		for _, k := range s.signers.set.Keys {
			if !c.set.HasKey(k.Public) {
				out = append(out, retiredKey{k.Public, k.ID, version})
			}
		}
	}
	slices.SortFunc(out, compareRetiredKeys)
	s.retired, s.signers = out, c
}

// emptyState is the state that version 0 is applied to.
func emptyState() *State { return &State{items: iradix.New[*Item]()} }
