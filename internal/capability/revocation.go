package capability

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"gopkg.in/macaroon.v2"

	"micronode/fault"
)

// MaxLife is the longest that a node lets a token live, and so the longest that
// a revocation by identifier alone has to be kept.
const MaxLife = 366 * 24 * time.Hour

// MaxRevocations is how many are kept at a time. One is dropped when its token
// has expired.
const MaxRevocations = 4096

// TokenID names a token without revealing anything by which it could be used.
// It is a hash over the identifier and all caveats up to the last one:
// narrowing a token makes one with another ID, and all IDs of its ancestors can
// be computed from it. So a revocation of a token holds for everything that was
// made from it, and for nothing that it was made from.
type TokenID [16]byte

// String is the ID in hex.
func (id TokenID) String() string { return hex.EncodeToString(id[:]) }

// ParseTokenID reads an ID.
func ParseTokenID(text string) (TokenID, error) {
	var id TokenID
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != len(id) || text != strings.ToLower(text) {
		return id, fault.New("capability.id", fault.Malformed, "the identifier of a token has 32 characters of 0-9 and a-f").
			Advise("`micronode token show` prints it. Or give the token itself.")
	}
	return TokenID(raw), nil
}

// chainHash is the hash of a token up to some caveat.
type chainHash [sha256.Size]byte

// chainHashes lists the hashes of a token and of all that it was narrowed from,
// that of the bare identifier first.
func chainHashes(m *macaroon.Macaroon) []chainHash {
	list := make([]chainHash, 0, len(m.Caveats())+1)
	hash := sha256.New()
	add := func(part []byte) {
		hash.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
		hash.Write(part)
		list = append(list, chainHash(hash.Sum(nil)))
	}
	add(m.Id())
	for _, caveat := range m.Caveats() {
		add(caveat.Id)
	}
	return list
}

// tokenID truncates a hash to the ID that is shown and kept.
func (c chainHash) tokenID() TokenID { return TokenID(c[:len(TokenID{})]) }

// RootID is the ID that a token had when it was minted. All tokens that were
// derived from one have the same.
func RootID(token string) (TokenID, error) {
	m, why := parse(token)
	if why != noReason {
		return TokenID{}, fault.New("capability.id", fault.Malformed, "%s", why)
	}
	return chainHashes(m)[0].tokenID(), nil
}

// idOf is the ID of a token.
func idOf(m *macaroon.Macaroon) TokenID {
	all := chainHashes(m)
	return all[len(all)-1].tokenID()
}

// Revocation is a token that is void although it has not expired. Until is when
// it expires anyway, and the revocation is dropped; the zero time is never.
type Revocation struct {
	ID    string    `json:"id"`
	Until time.Time `json:"until,omitzero"`
}

// revocations is the set of revoked tokens. It is bounded.
type revocations struct {
	mu    sync.RWMutex
	until map[TokenID]time.Time // guarded by mu; the zero time is never
}

// contains reports whether a token, or one that it was made from, is revoked.
func (r *revocations) contains(m *macaroon.Macaroon, now time.Time) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if len(r.until) == 0 {
		return false
	}
	return slices.ContainsFunc(chainHashes(m), func(s chainHash) bool {
		end, revoked := r.until[s.tokenID()]
		return revoked && (end.IsZero() || now.Before(end))
	})
}

// add adds revocations, and returns how many were new. Those that do not fit
// are not added, which is an error.
func (r *revocations) add(now time.Time, more map[TokenID]time.Time) (fresh int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.until, func(_ TokenID, end time.Time) bool { return !end.IsZero() && !now.Before(end) })
	for id, end := range more {
		known, revoked := r.until[id]
		switch {
		case !end.IsZero() && !now.Before(end), revoked && !isLater(end, known):
			continue
		case !revoked && len(r.until) >= MaxRevocations:
			err = tooManyRevocations()
			continue
		}
		r.until[id] = end
		fresh++
	}
	return fresh, err
}

// isLater reports whether one end is later than another.
func isLater(end, than time.Time) bool {
	return !than.IsZero() && (end.IsZero() || end.After(than))
}

func tooManyRevocations() error {
	return fault.New("capability.revoke", fault.QuotaExceeded, "the maximum of %d revocations is reached", MaxRevocations).
		Advise("Wait until revoked tokens expire, or change auth.root, which makes all tokens void.").RetryIn(time.Minute)
}

func (r *revocations) list(now time.Time) []Revocation {
	r.mu.RLock()
	defer r.mu.RUnlock()
	list := make([]Revocation, 0, len(r.until))
	for id, end := range r.until {
		if end.IsZero() || now.Before(end) {
			list = append(list, Revocation{id.String(), end})
		}
	}
	slices.SortFunc(list, func(a, b Revocation) int { return strings.Compare(a.ID, b.ID) })
	return list
}

// Revoke makes a token void, and everything that was or will be made from it.
// It is given as the token itself or as its ID. The revocation is kept until
// the token expires; of an ID alone, for as long as a token can live.
func (a *Authority) Revoke(which string) (Revocation, error) {
	const op = "capability.revoke"
	now := time.Now()
	id, end, err := a.revocationTarget(op, which, now)
	if err != nil {
		return Revocation{}, err
	}
	if _, err := a.revoked.add(now, map[TokenID]time.Time{id: end}); err != nil {
		return Revocation{}, fault.Wrap(op, err)
	}
	return Revocation{id.String(), end}, nil
}

// revocationTarget finds the token that is to be revoked, and its expiry.
func (a *Authority) revocationTarget(op, which string, now time.Time) (id TokenID, end time.Time, err error) {
	if !strings.HasPrefix(which, Prefix) {
		id, err = ParseTokenID(which)
		return id, now.Add(MaxLife).UTC().Truncate(time.Second), err
	}
	m, err := a.verifySignature(op, which)
	if err != nil {
		return id, end, fault.New(op, fault.Malformed, "%s", fault.DetailOf(err)).
			Advise("Give a token that this node, or one with the same auth.root, has minted; or its identifier.")
	}
	for _, caveat := range m.Caveats() {
		if c, known := readCondition(string(caveat.Id)); known && !c.Expires.IsZero() && (end.IsZero() || c.Expires.Before(end)) {
			end = c.Expires
		}
	}
	return idOf(m), end, nil
}

// Revoked lists the tokens that are void although they have not expired.
func (a *Authority) Revoked() []Revocation { return a.revoked.list(time.Now()) }

// RevokedDigest is equal for two authorities with the same revocations.
func (a *Authority) RevokedDigest() string {
	hash := sha256.New()
	for _, one := range a.Revoked() {
		fmt.Fprintf(hash, "%s %d\n", one.ID, one.Until.Unix())
	}
	return hex.EncodeToString(hash.Sum(nil)[:16])
}

// AddRevocations adds the revocations of another process with the same root, or
// those from before this one started. It returns how many of them were new.
func (a *Authority) AddRevocations(list []Revocation) (fresh int, err error) {
	more := make(map[TokenID]time.Time, len(list))
	for _, one := range list {
		id, err := ParseTokenID(one.ID)
		if err != nil {
			return 0, err
		}
		more[id] = one.Until
	}
	return a.revoked.add(time.Now(), more)
}
