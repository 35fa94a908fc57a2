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

// Contact is a peer that we keep a session with, and where it may be found.
type Contact struct {
	ID    oap.PeerID
	Addrs []string // host:port; tried in turn
}

// ParseContact reads ID@HOST:PORT. Several addresses stand behind each other
// with commas between them.
func ParseContact(text string) (Contact, error) {
	name, places, found := strings.Cut(text, "@")
	if !found {
		return Contact{}, notContact(text, "there is no @ in it")
	}
	id, err := oap.ParsePeerID(name)
	if err != nil {
		return Contact{}, notContact(text, fault.DetailOf(err))
	}
	contact := Contact{ID: id, Addrs: strings.Split(places, ",")}
	for _, addr := range contact.Addrs {
		host, port, err := net.SplitHostPort(addr)
		if number, bad := strconv.Atoi(port); err != nil || bad != nil || host == "" || number < 1 || number > 65535 {
			return Contact{}, notContact(text, strconv.Quote(addr)+" is no HOST:PORT")
		}
	}
	return contact, nil
}

func notContact(text, why string) error {
	err := fault.New("peer.parse", fault.Malformed, "%q is no peer: %s", text, why)
	err.Next = "Write ID@HOST:PORT. `micronode identity show` and the banner of a node print its ID; the usual port is 9500."
	return err
}

// String is what ParseContact reads.
func (c Contact) String() string { return c.ID.String() + "@" + strings.Join(c.Addrs, ",") }

// distinct sorts contacts by ID and merges those that name the same peer.
func distinct(contacts []Contact) []Contact {
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

// union appends what is not there yet, and touches neither list.
func union(have, more []string) []string {
	all := slices.Clone(have)
	for _, addr := range more {
		if !slices.Contains(all, addr) {
			all = append(all, addr)
		}
	}
	return all
}

// locate finds the contact with an ID in a list that distinct has sorted.
func locate(sorted []Contact, id oap.PeerID) (Contact, bool) {
	at, found := slices.BinarySearchFunc(sorted, id, func(c Contact, id oap.PeerID) int { return cmp.Compare(c.ID.Compare(id), 0) })
	if !found {
		return Contact{}, false
	}
	return sorted[at], true
}
