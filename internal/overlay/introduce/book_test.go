package introduce

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"micronode/internal/netguard"
	"micronode/internal/oap"
	"micronode/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Unix(1_800_000_000, 0)

// person is a node with a key.
type person struct {
	key ed25519.PrivateKey
	id  oap.PeerID
}

func newPerson(number int) person {
	seed := binary.BigEndian.AppendUint64(make([]byte, ed25519.SeedSize-8), uint64(number))
	key := ed25519.NewKeyFromSeed(seed)
	return person{key, oap.PeerIDOf(key.Public().(ed25519.PublicKey))}
}

// signs is what a node signs for an introducer.
func (p person) signs(t testing.TB, via oap.PeerID, at time.Time, addrs ...string) []byte {
	t.Helper()
	i := oap.Introduction{Key: [32]byte(p.key[32:]), Via: via, Seq: uint64(at.UnixMilli()), Until: uint64(at.Add(Life).UnixMilli()), Addrs: addrs}
	raw, err := i.Seal(p.key)
	testkit.Must(t, err)
	return raw
}

// reader is a book, and what was counted.
type reader struct {
	*Book
	counts map[Outcome]int
}

func newReader(self oap.PeerID) *reader {
	r := &reader{counts: map[Outcome]int{}}
	r.Book = New(Spec{Self: self, Skew: time.Minute, Count: func(o Outcome) { r.counts[o]++ }})
	return r
}

func (r *reader) ids() (list []oap.PeerID) {
	for _, one := range r.Introduced() {
		list = append(list, one.ID)
	}
	return list
}

var anywhere = netguard.AllowAny

// An introducer tells its members of each other, by what they have signed for it.
func TestFriendsOfFriends(t *testing.T) {
	hub, a, b, stranger := newPerson(1), newPerson(2), newPerson(3), newPerson(4)
	books := map[oap.PeerID]*reader{hub.id: newReader(hub.id), a.id: newReader(a.id), b.id: newReader(b.id)}
	for _, one := range []person{a, b, stranger} {
		if !books[hub.id].Hear(one.id, [][]byte{one.signs(t, hub.id, noon, "192.0.2.1:9500")}, anywhere, noon) {
			t.Error("a new member changes nothing")
		}
	}
	plan := books[hub.id].Tell(func(id oap.PeerID) bool { return id != stranger.id }, noon)
	if len(plan) != 2 || len(plan[a.id]) != 1 || len(plan[b.id]) != 1 {
		t.Fatalf("members are told of %v", plan)
	}
	if !books[a.id].Hear(hub.id, append([][]byte{hub.signs(t, a.id, noon)}, plan[a.id]...), anywhere, noon) {
		t.Error("an introduction changes nothing")
	}
	if list := books[a.id].Introduced(); len(list) != 1 || list[0].ID != b.id || !slices.Equal(list[0].By, []oap.PeerID{hub.id}) || !slices.Equal(list[0].Addrs, []string{"192.0.2.1:9500"}) {
		t.Errorf("introduced: %v", list)
	}
	if books[a.id].Hear(hub.id, append([][]byte{hub.signs(t, a.id, noon)}, plan[a.id]...), anywhere, noon) {
		t.Error("the same again changes something")
	}
	if len(books[hub.id].Tell(func(oap.PeerID) bool { return true }, noon.Add(Life))) != 0 {
		t.Error("what has ended is passed on")
	}
}

// What nobody signed for this introducer is not believed, whoever says it.
func TestWhatIsNotBelieved(t *testing.T) {
	hub, a, b := newPerson(1), newPerson(2), newPerson(3)
	forged := b.signs(t, hub.id, noon)
	forged[70] ^= 1
	for _, c := range []struct {
		name string
		raw  []byte
		want Outcome
	}{
		{"a bit is wrong", forged, Forged},
		{"signed for another introducer", b.signs(t, newPerson(9).id, noon), Foreign},
		{"the introducer itself, for another", hub.signs(t, newPerson(9).id, noon), Foreign},
		{"ended", b.signs(t, hub.id, noon.Add(-Life)), Expired},
		{"for too long", b.signs(t, hub.id, noon.Add(Life+time.Hour)), Expired},
	} {
		r := newReader(a.id)
		if r.Hear(hub.id, [][]byte{c.raw}, anywhere, noon) || len(r.Introduced()) != 0 || r.counts[c.want] != 1 {
			t.Errorf("%s: counted %v, introduced %v", c.name, r.counts, r.Introduced())
		}
	}
	r := newReader(a.id)
	if r.Hear(hub.id, [][]byte{a.signs(t, hub.id, noon)}, anywhere, noon) || len(r.counts) != 0 {
		t.Errorf("told of itself: %v", r.counts)
	}
}

// A peer cannot send a node to addresses that are nearer to it than the peer is,
// nor to a name. A node without addresses may still come.
func TestAddresses(t *testing.T) {
	hub, b := newPerson(1), newPerson(2)
	addrs := []string{"127.0.0.1:1", "10.0.0.1:2", "93.184.215.14:3", "169.254.169.254:4", "node.example:5", "[::1]:6", "[fe80::1%25eth0]:7", "93.184.215.14:3"}
	for want, policy := range map[string]netguard.DialPolicy{
		"93.184.215.14:3":                                {},
		"10.0.0.1:2 93.184.215.14:3":                     {Private: true},
		"127.0.0.1:1 10.0.0.1:2 93.184.215.14:3 [::1]:6": {Private: true, Loopback: true},
	} {
		r := newReader(newPerson(3).id)
		r.Hear(hub.id, [][]byte{b.signs(t, hub.id, noon, addrs...)}, policy, noon)
		if list := r.Introduced(); len(list) != 1 || strings.Join(list[0].Addrs, " ") != want {
			t.Errorf("%+v: %v, want %s", policy, list, want)
		}
	}
}

// One introducer has eight places, all together have sixty-four.
func TestPlaces(t *testing.T) {
	r := newReader(newPerson(0).id)
	for hub := range 10 {
		introducer := newPerson(1000 + hub)
		var nodes [][]byte
		for i := range 12 {
			nodes = append(nodes, newPerson(100*hub+i+1).signs(t, introducer.id, noon))
		}
		r.Hear(introducer.id, nodes, anywhere, noon)
		if n := len(r.Introduced()); n != min(MaxNeighbours*(hub+1), MaxIntroduced) {
			t.Errorf("%d nodes by %d introducers", n, hub+1)
		}
	}
	if r.counts[Full] != 120-MaxIntroduced {
		t.Errorf("counted %v", r.counts)
	}
}

// What an introducer takes back ends after a minute, in which it is connected: one
// that was restarted has to hear of its members first, and one that is gone for
// good takes nothing back.
func TestIntroductionsAreTakenBack(t *testing.T) {
	hub, b := newPerson(1), newPerson(2)
	r, here := newReader(newPerson(3).id), map[oap.PeerID]bool{hub.id: true, b.id: true}
	tell := func(nodes ...[]byte) { r.Hear(hub.id, nodes, anywhere, noon) }
	tell(b.signs(t, hub.id, noon))
	tell()
	if r.Expire(here, noon.Add(grace-1)) || r.Expire(nil, noon.Add(10*grace)) || r.Expire(here, noon.Add(11*grace-1)) {
		t.Error("it ended although its introducer had no time to hear of it")
	}
	tell(b.signs(t, hub.id, noon))
	if r.Expire(here, noon.Add(20*grace)) {
		t.Error("it ended although it was introduced again")
	}
	tell()
	if !r.Expire(here, noon.Add(21*grace)) || len(r.Introduced()) != 0 || r.counts[Withdrawn] != 1 {
		t.Errorf("it was taken back, and is there: %v", r.Introduced())
	}
	other := newPerson(4)
	tell(b.signs(t, hub.id, noon))
	r.Hear(other.id, [][]byte{b.signs(t, other.id, noon)}, anywhere, noon)
	tell()
	here[other.id] = true
	if r.Expire(here, noon.Add(21*grace)); len(r.Introduced()) != 1 {
		t.Error("one of two introducers took it back")
	}
}

// A node that was not seen for a week is forgotten. One that is connected stays,
// without its introducer.
func TestIntroducedNodesThatVanish(t *testing.T) {
	hub, b, c := newPerson(1), newPerson(2), newPerson(3)
	r := newReader(newPerson(4).id)
	r.Hear(hub.id, [][]byte{b.signs(t, hub.id, noon), c.signs(t, hub.id, noon)}, anywhere, noon)
	for day := range 30 {
		r.Expire(map[oap.PeerID]bool{c.id: true}, noon.Add(time.Duration(day)*24*time.Hour))
	}
	if !slices.Equal(r.ids(), []oap.PeerID{c.id}) || r.counts[Forgotten] != 1 {
		t.Errorf("there are %v, counted %v", r.ids(), r.counts)
	}
}

// Whom the operator has removed nobody introduces, and whom it has introduced are
// gone with it. After a restart, too.
func TestRemovedNodesDoNotComeBack(t *testing.T) {
	hub, b, c := newPerson(1), newPerson(2), newPerson(3)
	r := newReader(newPerson(4).id)
	say := func(r *reader) {
		r.Hear(hub.id, [][]byte{b.signs(t, hub.id, noon), c.signs(t, hub.id, noon)}, anywhere, noon)
	}
	say(r)
	if !r.Forget(b.id) {
		t.Error("it was not there")
	}
	restarted := newReader(newPerson(4).id)
	restarted.Restore(r.Introduced(), r.Refused(), noon)
	for _, one := range []*reader{r, restarted} {
		if say(one); !slices.Equal(one.ids(), []oap.PeerID{c.id}) || one.counts[Refused] != 1 {
			t.Errorf("there are %v, counted %v", one.ids(), one.counts)
		}
	}
	if !r.Allow(b.id) || r.Allow(b.id) {
		t.Error("it was refused once")
	}
	if say(r); len(r.ids()) != 2 {
		t.Errorf("the operator wants it again, and there are %v", r.ids())
	}
	if r.Forget(hub.id); len(r.ids()) != 0 {
		t.Errorf("their introducer was removed, and there are %v", r.ids())
	}
	for i := range 2 * maxRefused {
		r.Forget(newPerson(i + 10).id)
	}
	if len(r.Refused()) != maxRefused {
		t.Errorf("%d are refused", len(r.Refused()))
	}
}

// The rings connect all members, few hops apart, mutually and with eight neighbours
// at most; and they still connect nearly all when a third is gone. A member more
// changes little.
func TestRings(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 9, 10, 100, 1000} {
		members := make([]oap.PeerID, n)
		for i := range members {
			members[i] = oap.PeerID(binary.BigEndian.AppendUint64(bytes.Repeat([]byte{7}, 24), uint64(i)))
		}
		told := neighbours(members)
		for id, list := range told {
			if len(list) > MaxNeighbours {
				t.Errorf("%d members: one is told of %d", n, len(list))
			}
			for _, other := range list {
				if other == id || !slices.Contains(told[other], id) {
					t.Errorf("%d members: it is not mutual", n)
				}
			}
		}
		if reached, hops := reach(told, members, nil); reached != n || hops > 8 {
			t.Errorf("%d members: %d are reached, in %d hops", n, reached, hops)
		}
		gone := map[oap.PeerID]bool{}
		for i := range n / 3 {
			gone[members[3*i+1]] = true
		}
		if reached, _ := reach(told, members, gone); n > 2 && float64(reached) < 0.99*float64(n-len(gone)) {
			t.Errorf("%d members without a third: %d are reached", n, reached)
		}
		if n < 100 {
			continue
		}
		changed := 0
		for id, list := range neighbours(append(slices.Clone(members), oap.PeerID{1})) {
			if id != (oap.PeerID{1}) && fmt.Sprint(list) != fmt.Sprint(told[id]) {
				changed++
			}
		}
		if changed > 3*MaxNeighbours {
			t.Errorf("one more of %d changed whom %d are told of", n, changed)
		}
	}
}

// reach counts who is reached from the first that is there, and in how many hops.
func reach(told map[oap.PeerID][]oap.PeerID, members []oap.PeerID, gone map[oap.PeerID]bool) (reached, hops int) {
	if len(members) == 0 {
		return 0, 0
	}
	seen, last := map[oap.PeerID]bool{members[0]: true}, []oap.PeerID{members[0]}
	for ; len(last) > 0; hops++ {
		var next []oap.PeerID
		for _, id := range last {
			for _, other := range told[id] {
				if !seen[other] && !gone[other] {
					seen[other], next = true, append(next, other)
				}
			}
		}
		last = next
	}
	return len(seen), hops - 1
}
