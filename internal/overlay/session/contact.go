package session

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"

	"micronode/fault"
	"micronode/internal/oap"
)

// Contact is a peer that we keep a session with, and its addresses.
type Contact struct {
	ID    oap.PeerID
	Addrs []string // host:port, the likeliest first; empty if the peer is known, but dials us

	Introduced bool // by a peer: the operator has not named it, so it is dialled less often
}

// ParseContact parses ID@HOST:PORT. Several addresses are separated by commas.
func ParseContact(text string) (Contact, error) {
	name, addrs, found := strings.Cut(text, "@")
	if !found {
		return Contact{}, notContact(text, "there is no @ in it")
	}
	id, err := oap.ParsePeerID(name)
	if err != nil {
		return Contact{}, notContact(text, fault.DetailOf(err))
	}
	contact := Contact{ID: id, Addrs: strings.Split(addrs, ",")}
	for _, addr := range contact.Addrs {
		host, port, err := net.SplitHostPort(addr)
		if number, bad := strconv.Atoi(port); err != nil || bad != nil || host == "" || number < 1 || number > 65535 {
			return Contact{}, notContact(text, strconv.Quote(addr)+" is not HOST:PORT")
		}
	}
	return contact, nil
}

func notContact(text, why string) error {
	return fault.New("peer.parse", fault.Malformed, "%q is not a peer: %s", text, why).
		Advise("Write ID@HOST:PORT. `micronode identity show` and the banner of a node print its ID; the usual port is 9500.")
}

// String returns the form that ParseContact parses.
func (c Contact) String() string { return c.ID.String() + "@" + strings.Join(c.Addrs, ",") }

// mergeContacts sorts contacts by ID and merges those that name the same peer.
func mergeContacts(contacts []Contact) []Contact {
	sorted := slices.Clone(contacts)
	slices.SortStableFunc(sorted, func(a, b Contact) int { return a.ID.Compare(b.ID) })
	merged := sorted[:0]
	for _, one := range sorted {
		if n := len(merged); n > 0 && merged[n-1].ID == one.ID {
			merged[n-1].Addrs = union(merged[n-1].Addrs, one.Addrs)
			continue
		}
		one.Addrs = union(nil, one.Addrs)
		merged = append(merged, one)
	}
	return merged
}

// union returns have and what more adds to it, without duplicates. It changes
// neither list.
func union(have, more []string) []string {
	all := slices.Clone(have)
	for _, addr := range more {
		if !slices.Contains(all, addr) {
			all = append(all, addr)
		}
	}
	return all
}

// findContact finds the contact with an ID in a list sorted by mergeContacts.
func findContact(sorted []Contact, id oap.PeerID) (Contact, bool) {
	at, found := slices.BinarySearchFunc(sorted, id, func(c Contact, id oap.PeerID) int { return cmp.Compare(c.ID.Compare(id), 0) })
	if !found {
		return Contact{}, false
	}
	return sorted[at], true
}
