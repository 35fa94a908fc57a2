package introduce

import (
	"bytes"
	"slices"

	"micronode/b3"
	"micronode/internal/oap"
)

// rings is how many there are. A member has two neighbours in each.
const rings = 4

// MaxNeighbours is of how many others a node is told by one introducer.
const MaxNeighbours = 2 * rings

// neighbours says for each member of whom it is told. It is mutual.
func neighbours(members []oap.PeerID) map[oap.PeerID][]oap.PeerID {
	told := make(map[oap.PeerID][]oap.PeerID, len(members))
	acquaint := func(a, b oap.PeerID) {
		if a != b && !slices.Contains(told[a], b) {
			told[a], told[b] = append(told[a], b), append(told[b], a)
		}
	}
	type position struct {
		hash b3.Address
		id   oap.PeerID
	}
	ring := make([]position, len(members))
	for number := range byte(rings) {
		for i, id := range members {
			ring[i] = position{b3.Of(append(id[:], number)), id}
		}
		slices.SortFunc(ring, func(a, b position) int { return bytes.Compare(a.hash[:], b.hash[:]) })
		for i, one := range ring {
			acquaint(one.id, ring[(i+1)%len(ring)].id)
		}
	}
	return told
}
