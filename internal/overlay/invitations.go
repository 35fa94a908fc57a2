package overlay

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/invitation"
	"micronode/internal/oap"
)

// The bounds of invitations. An invitation that is used up is remembered until it
// expires, so that a second user is told what happened.
const (
	maxInvitations  = 256
	maxUses         = 1000
	maxInvitationID = 8 // bytes of the hash of the secret
	maxTTL          = 30 * 24 * time.Hour
)

// invitationTable knows the invitations that this node has made. Of each it has
// the hash of the secret only: the string is shown once, to who asked for it.
type invitationTable struct {
	mu     sync.Mutex
	byHash map[[sha256.Size]byte]*openInvitation // guarded by mu
}

// openInvitation is an invitation as the node that made it knows it.
type openInvitation struct {
	Hash    []byte       `json:"hash"`
	Name    string       `json:"name,omitempty"`
	Share   bool         `json:"share,omitempty"` // admits guests, while it lasts; otherwise peers, for good
	Object  b3.Address   `json:"object,omitzero"` // that is shared
	Local   bool         `json:"local,omitempty"` // was made for this machine only
	Made    time.Time    `json:"made"`
	Expires time.Time    `json:"expires"`
	Uses    int          `json:"uses"` // how many may use it in all
	UsedBy  []oap.PeerID `json:"used_by,omitempty"`
	Removed []oap.PeerID `json:"removed,omitempty"` // of them, those that the operator removed since
}

func newInvitationTable() *invitationTable {
	return &invitationTable{byHash: map[[sha256.Size]byte]*openInvitation{}}
}

func hashSecret(secret invitation.Secret) [sha256.Size]byte { return sha256.Sum256(secret[:]) }

// add enters an invitation. It is QuotaExceeded if there are too many.
func (t *invitationTable) add(secret invitation.Secret, one openInvitation, now time.Time) error {
	hash := hashSecret(secret)
	one.Hash = hash[:]
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire(now)
	if len(t.byHash) >= maxInvitations {
		return &fault.Error{Op: "overlay.invite", Kind: fault.QuotaExceeded, Detail: fmt.Sprintf("there are %d open invitations", maxInvitations),
			Next: "Withdraw some: micronode invite --list shows them, micronode invite --withdraw ID removes one."}
	}
	t.byHash[hash] = &one
	return nil
}

// expire removes what has expired. Guarded by mu. Time is that of this node alone.
func (t *invitationTable) expire(now time.Time) {
	for hash, one := range t.byHash {
		if !now.Before(one.Expires) {
			delete(t.byHash, hash)
		}
	}
}

// redeem uses an invitation for a peer, and reports whether it is a share. One
// peer uses it once, however often it comes.
func (t *invitationTable) redeem(secret invitation.Secret, id oap.PeerID, now time.Time) (share bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire(now)
	one := t.byHash[hashSecret(secret)]
	switch {
	case one == nil, slices.Contains(one.Removed, id):
		return false, errNoInvitation
	case slices.Contains(one.UsedBy, id):
		return one.Share, nil
	case len(one.UsedBy) >= one.Uses:
		return false, errInvitationUsed
	}
	one.UsedBy = append(one.UsedBy, id)
	return one.Share, nil
}

// check reports whether a guest that has used an invitation may stay.
func (t *invitationTable) check(secret invitation.Secret, id oap.PeerID, now time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire(now)
	if one := t.byHash[hashSecret(secret)]; one == nil || !slices.Contains(one.UsedBy, id) || slices.Contains(one.Removed, id) {
		return errNoInvitation
	}
	return nil
}

var (
	errNoInvitation = &fault.Error{Op: "overlay.invitation", Kind: fault.Unauthorized, Detail: "there is no such invitation: it has expired, or was withdrawn, or the node was restarted",
		Next: "Ask for a new one: micronode invite."}
	errInvitationUsed = &fault.Error{Op: "overlay.invitation", Kind: fault.Unauthorized, Detail: "the invitation was used up by another node",
		Next: "Ask for a new one: micronode invite. With --uses N it is for N nodes."}
)

// remove says that a peer was removed: what it has used does not let it in again.
func (t *invitationTable) remove(id oap.PeerID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range t.byHash {
		if slices.Contains(one.UsedBy, id) && !slices.Contains(one.Removed, id) {
			one.Removed = append(one.Removed, id)
		}
	}
}

// withdraw removes an invitation by its ID, and reports whether there was one.
func (t *invitationTable) withdraw(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for hash, one := range t.byHash {
		if one.id() == id {
			delete(t.byHash, hash)
			return true
		}
	}
	return false
}

// needsReach reports whether an invitation is open for which the node must be
// reached from other machines.
func (t *invitationTable) needsReach(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire(now)
	for _, one := range t.byHash {
		if !one.Local && (one.Share || len(one.UsedBy) < one.Uses) {
			return true
		}
	}
	return false
}

// all lists the invitations, those that end first before the others.
func (t *invitationTable) all(now time.Time) []openInvitation {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire(now)
	list := make([]openInvitation, 0, len(t.byHash))
	for _, one := range t.byHash {
		copied := *one
		copied.UsedBy, copied.Removed = slices.Clone(one.UsedBy), slices.Clone(one.Removed)
		list = append(list, copied)
	}
	slices.SortFunc(list, func(a, b openInvitation) int {
		return cmp.Or(a.Expires.Compare(b.Expires), slices.Compare(a.Hash, b.Hash))
	})
	return list
}

// objects lists the objects of the shares that last.
func (t *invitationTable) objects(now time.Time) (list []b3.Address) {
	for _, one := range t.all(now) {
		if !one.Object.IsZero() {
			list = append(list, one.Object)
		}
	}
	return list
}

// restore enters what was kept.
func (t *invitationTable) restore(list []openInvitation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range list {
		if len(one.Hash) == sha256.Size && len(t.byHash) < maxInvitations {
			t.byHash[[sha256.Size]byte(one.Hash)] = &one
		}
	}
}

// id names an invitation without revealing its secret.
func (i *openInvitation) id() string { return hex.EncodeToString(i.Hash[:maxInvitationID]) }

// shape is the invitation as the API shows it.
func (i *openInvitation) shape() client.Invitation {
	used := make([]string, len(i.UsedBy))
	for n, id := range i.UsedBy {
		used[n] = id.String()
	}
	return client.Invitation{ID: i.id(), Name: i.Name, Share: i.Share, Object: i.Object, Expires: i.Expires.UTC(), Uses: i.Uses, UsedBy: used}
}
