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

// State is what the registry says after one version. It never changes: a
// commit makes a new one that shares with the old all that was not touched, at
// a cost that follows from the change and not from the size of the registry.
// Any number of goroutines may read one. The nil State is what there is before
// version 0; only Apply and Replay take it.
type State struct {
	registry    b3.Address
	head        Head
	committedAt time.Time
	items       *iradix.Tree[*Item] // by id

	council        *council
	signerVersions []uint64     // the versions that changed the signer set, 0 first
	retired        []retirement // sorted by key

	before []former // what the items were that the head touched, sorted by id
	spent  spent    // the proposals that were committed and have not expired
}

// retirement is a key that was in the signer set and is not now.
type retirement struct {
	public   PublicKey
	signerID string
	version  uint64 // that took it out
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

// Items goes through all items, sorted by id.
func (s *State) Items() iter.Seq[Item] {
	return func(yield func(Item) bool) {
		s.items.Root().Walk(func(_ []byte, item *Item) bool { return !yield(*item) })
	}
}

// Signers is the signer set in force.
func (s *State) Signers() SignerSet {
	return SignerSet{M: s.council.set.M, Keys: slices.Clone(s.council.set.Keys)}
}

// SignersVersion is the version that put the signer set in force.
func (s *State) SignersVersion() uint64 { return s.signerVersions[len(s.signerVersions)-1] }

// SignerVersions lists the versions that changed the signer set, 0 first.
func (s *State) SignerVersions() []uint64 { return slices.Clone(s.signerVersions) }

// Retired says in which version a key went out of the signer set, if it was in
// one and is not now.
func (s *State) Retired(public PublicKey) (version uint64, ok bool) {
	i, found := slices.BinarySearchFunc(s.retired, retirement{public: public}, compareRetirements)
	if !found {
		return 0, false
	}
	return s.retired[i].version, true
}

func compareRetirements(a, b retirement) int { return bytes.Compare(a.public[:], b.public[:]) }

// Committed says as which version a proposal was committed, if it was. It is
// remembered until the proposal expires.
func (s *State) Committed(proposal string, at time.Time) (version uint64, ok bool) {
	id, ok := parseProposalID(proposal)
	if !ok {
		return 0, false
	}
	return s.spent.find(id, s.clock(at))
}

// formersOf looks up what a change would touch, and refuses operations that
// have nothing to do or would do something else than they say.
func (s *State) formersOf(ops []Op) ([]former, error) {
	formers := make([]former, 0, len(ops))
	for _, op := range ops {
		item, _ := s.items.Get([]byte(op.ID))
		if err := fits(item, op); err != nil {
			return nil, err
		}
		formers = append(formers, former{op.ID, item})
	}
	slices.SortFunc(formers, func(a, b former) int { return strings.Compare(a.id, b.id) })
	return formers, nil
}

// advance is the state after a version that was found good.
func (s *State) advance(head Head, h *Header, ops []Op, formers []former) *State {
	next := *s
	next.head, next.committedAt, next.before = head, h.CommittedAt, formers
	if id, ok := parseProposalID(h.ProposalID); ok {
		next.spent = s.spent.with(use{id, h.ExpiresAt.UnixMilli(), head.Version}, h.CommittedAt)
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
			next.seat(newCouncil(item))
		}
	}
	next.items = items.CommitOnly()
	return &next
}

// seat puts a signer set in force. The slices are made anew, because the state
// before still has the old ones.
func (s *State) seat(c *council) {
	version := s.head.Version
	s.signerVersions = append(slices.Clone(s.signerVersions), version)
	var out []retirement
	for _, r := range s.retired {
		if !c.set.Holds(r.public) {
			out = append(out, r)
		}
	}
	if s.council != nil {
		for _, k := range s.council.set.Keys {
			if !c.set.Holds(k.Public) {
				out = append(out, retirement{k.Public, k.ID, version})
			}
		}
	}
	slices.SortFunc(out, compareRetirements)
	s.retired, s.council = out, c
}

// empty is the state that version 0 is applied to.
func empty() *State { return &State{items: iradix.New[*Item]()} }
