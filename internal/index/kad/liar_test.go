package kad

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	dht "github.com/libp2p/go-libp2p-kad-dht"
	pb "github.com/libp2p/go-libp2p-kad-dht/pb"
	kb "github.com/libp2p/go-libp2p-kbucket"
	libp2precord "github.com/libp2p/go-libp2p-record"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"micronode/fault"
	"micronode/internal/index/record"
	"micronode/internal/testkit"
)

// answering answers with whatever fill adds to an empty answer.
func answering(fill func(q, answer *pb.Message)) reply {
	return answeringFindNode(func(s network.Stream, q *pb.Message) bool {
		answer := pb.NewMessage(q.GetType(), q.GetKey(), 0)
		fill(q, answer)
		return write(s, answer)
	})
}

func TestTooMuchIsCut(t *testing.T) {
	var addrs [][]byte
	for port := range 40 {
		addrs = append(addrs, ma.StringCast(fmt.Sprintf("/ip4/127.0.0.1/tcp/%d", 1000+port)).Bytes())
	}
	addrs = append(addrs, ma.StringCast("/ip4/127.0.0.1/tcp/9500/tls").Bytes())
	n := open(t, 1)
	openMaliciousPeer(t, 2, answering(func(_, answer *pb.Message) {
		for i := range 10_000 {
			key := objectNo(i) // serves as a key
			one := &pb.Message_Peer{Id: append([]byte{0, 36, 8, 1, 18, 32}, key[:]...)}
			if i < 200 {
				one.Addrs = addrs
			}
			answer.ProviderPeers = append(answer.ProviderPeers, one)
		}
	})).connectTo(t, n)
	for what, ask := range map[string]func() (record.Answer, error){
		"one peer": func() (record.Answer, error) { return askClosest(t, n, asks(objectNo(1))) },
		"a walk":   func() (record.Answer, error) { return n.Walk(budget(t), asks(objectNo(1))) },
	} {
		answer, err := ask()
		if what == "one peer" && len(answer.Providers) != maxProviders {
			t.Errorf("%s: %d providers", what, len(answer.Providers))
		}
		if err != nil || len(answer.Providers) == 0 || len(answer.Providers) > maxProviders {
			t.Fatalf("%s: %d providers, %v", what, len(answer.Providers), err)
		}
		for _, p := range answer.Providers {
			if n := len(p.Overlay) + len(p.HTTP) + len(p.Other); n > 1 && len(p.Overlay) != 1 || n > maxAddrs+1 || what == "one peer" && n < maxAddrs { // and its /p2p address
				t.Fatalf("%s: %+v", what, p)
			}
		}
	}
}

func TestWhatIsNoAnswerIsTyped(t *testing.T) {
	stolen, old := signed(9, "docs", 9, 1), signed(9, "docs", 1, 1)
	stolen.Key = publicNo(8)
	value := func(raw []byte) reply {
		return answering(func(q, answer *pb.Message) { answer.Record = libp2precord.MakePutRecord(string(q.GetKey()), raw) })
	}
	expired := record.SignName(keyNo(9), record.Name{Name: "docs", Seq: 3, Issued: old.Issued.Add(-2 * time.Hour), Expires: old.Issued.Add(-time.Hour)})
	cases := map[string]struct {
		reply reply
		q     record.Question
		kind  fault.Kind // none: an empty answer
	}{
		"garbage":              {answeringFindNode(func(s network.Stream, _ *pb.Message) bool { return writeRaw(s, []byte("\xff\xff\xffgarbage")) }), asks(objectNo(1)), fault.UpstreamFailed},
		"too long":             {answeringFindNode(func(s network.Stream, _ *pb.Message) bool { return writeRaw(s, make([]byte, network.MessageSizeMax+1)) }), asks(objectNo(1)), fault.UpstreamFailed},
		"no IDs":               {answering(func(_, a *pb.Message) { a.ProviderPeers = []*pb.Message_Peer{{Id: []byte("x")}, {}} }), asks(objectNo(1)), fault.UpstreamFailed},
		"an ID without end":    {answering(func(_, a *pb.Message) { a.ProviderPeers = []*pb.Message_Peer{{Id: bytes.Repeat([]byte{0}, 4096)}} }), asks(objectNo(1)), fault.UpstreamFailed},
		"a reset":              {answeringFindNode(func(network.Stream, *pb.Message) bool { return false }), asks(objectNo(1)), fault.Transient},
		"a record of garbage":  {value([]byte("garbage")), asksName(9, "docs"), fault.UpstreamFailed},
		"an empty record":      {value(nil), asksName(9, "docs"), fault.UpstreamFailed},
		"a forged record":      {value(stolen.Encode()), asksName(9, "docs"), fault.UpstreamFailed},
		"another's record":     {value(signed(8, "docs", 9, 1).Encode()), asksName(9, "docs"), fault.UpstreamFailed},
		"another name's":       {value(signed(9, "doc", 9, 1).Encode()), asksName(9, "docs"), fault.UpstreamFailed},
		"another key's":        {answering(func(_, a *pb.Message) { a.Record = libp2precord.MakePutRecord("/micronode/other", old.Encode()) }), asksName(9, "docs"), fault.UpstreamFailed},
		"a record too large":   {value(make([]byte, 5<<10)), asksName(9, "docs"), fault.UpstreamFailed},
		"one that has expired": {value(expired.Encode()), asksName(9, "docs"), 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			n := open(t, 1)
			openMaliciousPeer(t, 2, c.reply).connectTo(t, n)
			answer, err := askClosest(t, n, c.q)
			if fault.KindOf(err) != c.kind || len(answer.Providers) != 0 || answer.Name != nil {
				t.Errorf("one peer: %+v, %s: %v", answer, fault.KindOf(err), err)
			}
			answer, err = n.Walk(budget(t), c.q)
			if err != nil && fault.KindOf(err) != fault.NoRoute || len(answer.Providers) != 0 || answer.Name != nil {
				t.Errorf("a walk: %+v, %v", answer, err)
			}
		})
	}
}

func TestAnOldRecordDoesNotPoisonANewerOne(t *testing.T) {
	a := open(t, 1)
	openMaliciousPeer(t, 2, answering(func(q, answer *pb.Message) {
		if q.GetType() == pb.Message_GET_VALUE {
			answer.Record = libp2precord.MakePutRecord(string(q.GetKey()), signed(9, "docs", 5, 1).Encode())
			return
		}
		answer.Record = q.GetRecord() // it claims to store the record
	})).connectTo(t, a)
	testkit.Must(t, a.Publish(budget(t), signed(9, "docs", 7, 2)))
	answer, err := askClosest(t, a, asksName(9, "docs"))
	if err != nil || answer.Name == nil || answer.Name.Seq != 7 {
		t.Errorf("one peer: %+v, %v", answer.Name, err)
	}
	answer, err = a.Walk(budget(t), asksName(9, "docs"))
	if err != nil || answer.Name == nil || answer.Name.Seq != 7 {
		t.Errorf("a walk: %+v, %v", answer.Name, err)
	}
}

func TestASilentPeerIsATimeout(t *testing.T) {
	n := open(t, 1)
	openMaliciousPeer(t, 2, answeringFindNode(func(network.Stream, *pb.Message) bool { return true })).connectTo(t, n)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := n.Closest(asks(objectNo(1)), 1)[0].Ask(ctx, asks(objectNo(1))); fault.KindOf(err) != fault.Timeout {
		t.Errorf("one peer: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := n.Walk(ctx, asks(objectNo(1))); fault.KindOf(err) != fault.Timeout {
		t.Errorf("a walk: %v", err)
	}
}

func TestAPeerThatTakesNothingIsTold(t *testing.T) {
	n := open(t, 1)
	openMaliciousPeer(t, 2, answeringFindNode(func(network.Stream, *pb.Message) bool { return false })).connectTo(t, n)
	if err := n.Publish(budget(t), signed(1, "docs", 1, 1)); fault.KindOf(err) != fault.Transient {
		t.Errorf("%s: %v", fault.KindOf(err), err)
	}
}

func TestBothWaysToAProviderAreKept(t *testing.T) {
	info := peer.AddrInfo{ID: peer.ID(append([]byte{0, 36, 8, 1, 18, 32}, publicNo(5)...))}
	for port := range 10 {
		info.Addrs = append(info.Addrs, ma.StringCast(fmt.Sprintf("/ip4/127.0.0.1/tcp/%d/tls", 1000+port)),
			ma.StringCast(fmt.Sprintf("/ip4/127.0.0.1/tcp/%d/http", 2000+port)), ma.StringCast(fmt.Sprintf("/ip4/127.0.0.1/tcp/%d", 3000+port)))
	}
	p, ok := parseProvider(info)
	if !ok || len(p.Overlay) != 4 || len(p.HTTP) != 4 || len(p.Other) != 1 || p.Other[0] != "/p2p/"+info.ID.String() {
		t.Errorf("%+v", p)
	}
	p.Other = nil
	if n := len(open(t, 1, func(s *Spec) { s.Advertise = func() []string { return p.Multiaddrs() } }).host.Addrs()); n != 9 {
		t.Errorf("%d addresses are told", n)
	}
}

func TestAStrangersIDStaysText(t *testing.T) {
	const stranger = "QmaCpDMGvV2BGHeYERUEnRQAwe3N8SzbUtfsmvsqQLuvuJ" // of an RSA key
	id, err := peer.Decode(stranger)
	testkit.Must(t, err)
	n := open(t, 1)
	openMaliciousPeer(t, 2, answering(func(_, answer *pb.Message) { answer.ProviderPeers = []*pb.Message_Peer{{Id: []byte(id)}} })).connectTo(t, n)
	answer, err := askClosest(t, n, asks(objectNo(1)))
	if err != nil || len(answer.Providers) != 1 || answer.Providers[0].ID != stranger {
		t.Errorf("%+v, %v", answer, err)
	}
}

func TestErrorsOfTheLibraryInOurWords(t *testing.T) {
	for err, want := range map[error]fault.Kind{
		dht.ErrReadTimeout: fault.Timeout, io.EOF: fault.Transient, network.ErrReset: fault.Transient,
		network.ErrNoConn: fault.NoRoute, errors.New("other"): fault.UpstreamFailed, network.ErrResourceLimitExceeded: fault.Transient,
	} {
		if got, _ := classifyError(err); got != want {
			t.Errorf("%v is %s", err, got)
		}
	}
	if err := walkError(t.Context(), "op", kb.ErrLookupFailure); fault.KindOf(err) != fault.NoRoute {
		t.Errorf("%v", err)
	}
	if err := walkError(t.Context(), "op", errors.New("other")); fault.KindOf(err) != fault.Internal {
		t.Errorf("%v", err)
	}
}

// A bootstrap peer may have been started a moment before us, and know no peers
// yet. A node with few peers asks again, long before the library would.
func TestWhoKnowsFewAsksAgain(t *testing.T) {
	other := open(t, 2)
	const early = 5 // more than it takes to join
	var asked atomic.Int64
	first := openMaliciousPeer(t, 3, func(s network.Stream, q *pb.Message) bool {
		answer := pb.NewMessage(q.GetType(), nil, 0)
		if q.GetType() == pb.Message_FIND_NODE && asked.Add(1) > early {
			answer.CloserPeers = pb.RawPeerInfosToPBPeers([]peer.AddrInfo{{ID: other.selfID, Addrs: other.host.Addrs()}})
		}
		return write(s, answer)
	})
	n := open(t, 1, func(s *Spec) {
		for _, addr := range first.host.Addrs() {
			s.Bootstrap = append(s.Bootstrap, addr.String()+"/p2p/"+first.id.String())
		}
	})
	testkit.WaitFor(t, "it knows both", func() bool { return n.Size() == 2 })
}
