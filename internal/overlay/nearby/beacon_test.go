package nearby

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"

	"micronode/internal/oap"
	"micronode/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Unix(1_800_000_000, 0)

// hearing is a beacon in one network, without its socket.
type hearing struct {
	*Beacon
	counts   map[Outcome]int
	networks []Network
}

func newHearing(self oap.PeerID) *hearing {
	h := &hearing{counts: map[Outcome]int{}, networks: []Network{{Index: 2, Name: "eth0", Prefixes: []netip.Prefix{netip.MustParsePrefix("192.168.7.1/24")}}}}
	h.Beacon = New(Spec{Self: self, Count: func(o Outcome) { h.counts[o]++ }, Report: func(State) {}})
	return h
}

// from hears a packet of a host, as its socket would.
func (h *hearing) from(host string, bytes []byte, now time.Time) bool {
	return h.hear(packet{bytes: bytes, from: netip.AddrPortFrom(netip.MustParseAddr(host), port), index: 2, multicast: true}, h.networks, now)
}

func said(t *testing.T, id oap.PeerID, port uint16, ttl uint32) []byte {
	t.Helper()
	bytes, err := announcement(id.String(), port, []netip.Addr{netip.MustParseAddr("192.168.7.2")}, ttl)
	testkit.Must(t, err)
	return bytes
}

func (h *hearing) addrs(id oap.PeerID, now time.Time) string {
	return strings.Join(h.Addrs(id, now), " ")
}

// What one node says, another one hears, remembers for three minutes, and forgets
// at a goodbye.
func TestWhatIsSaidIsHeard(t *testing.T) {
	self, other := oap.PeerID{1}, oap.PeerID{2}
	h := newHearing(self)
	if !h.from("192.168.7.2", query(), noon) || h.from("192.168.7.2", said(t, other, 9500, lifetime), noon) {
		t.Error("a question is to be answered, and an announcement is not")
	}
	if got := h.addrs(other, noon); got != "192.168.7.2:9500" {
		t.Errorf("it is at %q", got)
	}
	h.from("192.168.7.2", said(t, other, 9500, lifetime), noon.Add(time.Minute))
	if h.addrs(other, noon.Add(lifetime*time.Second)) == "" || h.addrs(other, noon.Add((lifetime+60)*time.Second)) != "" {
		t.Error("it is not remembered for three minutes from when it was last heard")
	}
	h.from("192.168.7.2", said(t, other, 9500, lifetime), noon)
	h.from("192.168.7.3", said(t, other, 9500, 0), noon)
	if h.addrs(other, noon) == "" {
		t.Error("another host said goodbye for it")
	}
	h.from("192.168.7.2", said(t, other, 9500, 0), noon)
	h.from("192.168.7.1", said(t, self, 9500, lifetime), noon)
	if list := h.Nodes(noon); len(list) != 0 {
		t.Errorf("it has left, and nobody else is there: %v", list)
	}
	want := map[Outcome]int{Heard: 2, Renewed: 1, Foreign: 1, Left: 1}
	if fmt.Sprint(h.counts) != fmt.Sprint(want) {
		t.Errorf("counted %v, want %v", h.counts, want)
	}
}

// A node that is not wanted is not shown, as long as it is heard. It can be
// accepted all the same.
func TestHiddenNodes(t *testing.T) {
	h, other := newHearing(oap.PeerID{1}), oap.PeerID{2}
	h.from("192.168.7.2", said(t, other, 9500, lifetime), noon)
	if !h.Hide(other, noon) || h.Hide(other, noon) || len(h.Nodes(noon)) != 0 || h.addrs(other, noon) == "" {
		t.Error("it is shown, or its address is forgotten")
	}
	h.from("192.168.7.2", said(t, other, 9500, lifetime), noon.Add(time.Minute))
	if later := noon.Add(time.Minute); len(h.Nodes(later)) != 0 || h.Hide(oap.PeerID{9}, later) {
		t.Error("it is shown again, or one is hidden that is not there")
	}
}

// Only the host itself can say where it is, by multicast in its own network.
func TestPacketsFromElsewhere(t *testing.T) {
	good := said(t, oap.PeerID{2}, 9500, lifetime)
	for name, p := range map[string]packet{
		"another network":    {from: netip.MustParseAddrPort("10.9.9.9:5353"), index: 2, multicast: true},
		"another interface":  {from: netip.MustParseAddrPort("192.168.7.2:5353"), index: 3, multicast: true},
		"another port":       {from: netip.MustParseAddrPort("192.168.7.2:5354"), index: 2, multicast: true},
		"sent to this alone": {from: netip.MustParseAddrPort("192.168.7.2:5353"), index: 2},
	} {
		h := newHearing(oap.PeerID{1})
		p.bytes = good
		if h.hear(p, h.networks, noon); h.counts[Foreign] != 1 || len(h.Nodes(noon)) != 0 {
			t.Errorf("%s: counted %v, there are %v", name, h.counts, h.Nodes(noon))
		}
	}
}

// srv is a packet with one record, as a hostile sender would make it.
func srv(t *testing.T, instance string, port uint16, class dnsmessage.Class) []byte {
	t.Helper()
	name, err := dnsmessage.NewName(instance + "." + Service)
	testkit.Must(t, err)
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{Response: true})
	testkit.Must(t, b.StartAnswers())
	testkit.Must(t, b.SRVResource(dnsmessage.ResourceHeader{Name: name, Class: class, TTL: 1 << 31}, dnsmessage.SRVResource{Port: port, Target: name}))
	bytes, err := b.Finish()
	testkit.Must(t, err)
	return bytes
}

// Hostile records are refused and counted; no text of them is kept.
func TestHostileRecords(t *testing.T) {
	id := oap.PeerID{2}.String()
	for name, bytes := range map[string][]byte{
		"nothing":              {},
		"no DNS":               []byte("GET / HTTP/1.1\r\n\r\n"),
		"cut":                  said(t, oap.PeerID{2}, 9500, lifetime)[:60],
		"a long name":          srv(t, strings.Repeat("a", 63), 9500, dnsmessage.ClassINET),
		"a screen is cleared":  srv(t, "\x1b[2J\x1b]0;x\a", 9500, dnsmessage.ClassINET),
		"no port":              srv(t, id, 0, dnsmessage.ClassINET),
		"of another Internet":  srv(t, id, 9500, dnsmessage.ClassCHAOS),
		"many labels":          srv(t, strings.Repeat("a.", 80)+id, 9500, dnsmessage.ClassINET),
		"an ID of zeros to us": srv(t, strings.Repeat("0", 52), 9500, dnsmessage.ClassINET),
	} {
		h := newHearing(oap.PeerID{1})
		if h.from("192.168.7.2", bytes, noon); h.counts[Malformed] != 1 || len(h.Nodes(noon)) != 0 {
			t.Errorf("%s: counted %v, there are %v", name, h.counts, h.Nodes(noon))
		}
	}
	h := newHearing(oap.PeerID{1})
	h.from("192.168.7.2", srv(t, id, 9500, dnsmessage.ClassINET), noon)
	if h.addrs(oap.PeerID{2}, noon.Add(maxTTL*time.Second)) != "" {
		t.Error("it is to be remembered for a lifetime")
	}
}

// A packet of a thousand records costs as much as one of sixty-four, and a flood
// of packets as much as two hundred a second.
func TestFloods(t *testing.T) {
	h := newHearing(oap.PeerID{1})
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{Response: true})
	testkit.Must(t, b.StartAnswers())
	for i := range 200 {
		name := dnsmessage.MustNewName(oap.PeerID{3, byte(i)}.String() + "." + Service)
		testkit.Must(t, b.SRVResource(dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET, TTL: 100}, dnsmessage.SRVResource{Port: 1, Target: dnsmessage.MustNewName(".")}))
	}
	bytes, err := b.Finish()
	testkit.Must(t, err)
	h.from("192.168.7.9", bytes, noon)
	if len(h.Nodes(noon)) != MaxNodesPerHost || h.counts[Full] != maxRecords-MaxNodesPerHost {
		t.Errorf("%d nodes of one host, counted %v", len(h.Nodes(noon)), h.counts)
	}
	h.from("192.168.7.2", said(t, oap.PeerID{2}, 9500, lifetime), noon)
	for i := range 100 {
		h.from(fmt.Sprintf("192.168.7.%d", 20+i), said(t, oap.PeerID{4, byte(i)}, 9500, lifetime), noon)
	}
	if len(h.Nodes(noon)) != MaxNodes || h.addrs(oap.PeerID{2}, noon) == "" {
		t.Errorf("%d nodes; the one that was there before is at %q", len(h.Nodes(noon)), h.addrs(oap.PeerID{2}, noon))
	}
	for i := range 10 {
		h.from("192.168.7.200", said(t, oap.PeerID{2}, uint16(1000+i), lifetime), noon)
	}
	if n := len(h.Addrs(oap.PeerID{2}, noon)); n != maxAddrs {
		t.Errorf("%d addresses of one node", n)
	}
	for range 1000 {
		h.from("192.168.7.201", query(), noon)
	}
	if h.counts[Flooded] != 1000-(maxPackets-112) {
		t.Errorf("%d packets of a flood were not read", h.counts[Flooded])
	}
}

// Any bytes are either read or refused.
func FuzzPackets(f *testing.F) {
	good, err := announcement(oap.PeerID{2}.String(), 9500, nil, lifetime)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(query())
	f.Fuzz(func(t *testing.T, bytes []byte) {
		if p, err := parse(bytes, oap.PeerID{1}.String()); err == nil && len(p.claims)+p.bad > maxRecords {
			t.Errorf("%d claims in a packet", len(p.claims))
		}
	})
}

// A node announces itself twice at first, then once a minute, and answers
// questions soon, but once a second at most.
func TestWhenANodeSpeaks(t *testing.T) {
	s := newSchedule(noon)
	var asks, tells []time.Duration
	for now := noon; now.Before(noon.Add(3 * time.Minute)); now = s.next() {
		a, b := s.due(now)
		if a {
			asks = append(asks, now.Sub(noon))
		}
		if b {
			tells = append(tells, now.Sub(noon))
		}
	}
	if !slices.Equal(asks, askAt) || !slices.Equal(tells, []time.Duration{0, time.Second, 61 * time.Second, 121 * time.Second}) {
		t.Errorf("asks at %v, announces at %v", asks, tells)
	}
	now := noon.Add(150 * time.Second)
	s.asked(now)
	if wait := s.next().Sub(now); wait < 0 || wait > answerDelay {
		t.Errorf("answers after %s", wait)
	}
	s.due(now.Add(answerDelay))
	s.asked(now.Add(answerDelay))
	if wait := s.next().Sub(now.Add(answerDelay)); wait < answerPause {
		t.Errorf("answers again after %s", wait)
	}
}

// A machine without a network, or one that forbids multicast, is told as it is,
// once, and tried again with bounded pauses, until the task is stopped.
func TestNetworksThatFail(t *testing.T) {
	for name, networks := range map[string]func() ([]Network, error){
		"none":                 func() ([]Network, error) { return nil, nil },
		"they cannot be read":  func() ([]Network, error) { return nil, errors.New("not permitted") },
		"it vanished just now": func() ([]Network, error) { return []Network{{Index: 1 << 30, Name: "gone"}}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				var reports []State
				b := New(Spec{Self: oap.PeerID{1}, Port: func() uint16 { return 9500 }, Count: func(Outcome) {},
					Report:   func(s State) { reports = append(reports, s) },
					Networks: func() ([]Network, error) { tries++; return networks() }})
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				if err := b.Serve(ctx); err != nil || ctx.Err() == nil {
					t.Errorf("it ended with %v before it was stopped", err)
				}
				if len(reports) != 1 || reports[0].Problem == nil || len(reports[0].Networks) != 0 {
					t.Errorf("reported %+v", reports)
				}
				if tries < 40 || tries > 200 {
					t.Errorf("%d tries in ten minutes", tries)
				}
			})
		})
	}
}
