package kad

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"io"
	"testing"
	"time"

	pb "github.com/libp2p/go-libp2p-kad-dht/pb"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	bhost "github.com/libp2p/go-libp2p/p2p/host/basic"
	"github.com/libp2p/go-msgio"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"micronode/b3"
	"micronode/internal/index/record"
	"micronode/internal/netguard"
	"micronode/internal/oap"
	"micronode/internal/supervise"
	"micronode/internal/testkit"
)

func TestMain(m *testing.M) {
	confinedChild()
	goleak.VerifyTestMain(m)
}

// keyNo is a deterministic key.
func keyNo(no int) ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	binary.BigEndian.PutUint32(seed, uint32(no))
	return ed25519.NewKeyFromSeed(seed)
}

func publicNo(no int) ed25519.PublicKey { return keyNo(no).Public().(ed25519.PublicKey) }

// tasks runs searchPeers for the networks of a test.
func tasks(t testing.TB) *supervise.Group {
	t.Helper()
	sup, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "all"}}, DrainTimeout: time.Second})
	testkit.Must(t, err)
	group, err := sup.NewGroup(supervise.GroupSpec{Service: "index", Kind: "dht", Stage: "all", Max: 64})
	testkit.Must(t, err)
	return group
}

// open makes a network on loopback that is closed with the test.
func open(t testing.TB, no int, change ...func(*Spec)) *Network {
	t.Helper()
	spec := Spec{Key: keyNo(no), Listen: []string{"127.0.0.1:0"}, Tasks: tasks(t), Reach: onThisMachine}
	for _, c := range change {
		c(&spec)
	}
	n, err := Open(t.Context(), spec)
	testkit.Must(t, err)
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return n
}

// onThisMachine allows networks to dial loopback addresses.
func onThisMachine() netguard.DialPolicy { return netguard.DialPolicy{Loopback: true} }

// withBootstrap sets other networks as bootstrap peers.
func withBootstrap(others ...*Network) func(*Spec) {
	return func(s *Spec) {
		for _, o := range others {
			s.Bootstrap = append(s.Bootstrap, o.Addrs()...)
		}
	}
}

// onFreePort listens on a free port, for a network that is closed and reopened.
func onFreePort(t testing.TB) func(*Spec) {
	t.Helper()
	address := testkit.FreeAddress(t)
	return func(s *Spec) { s.Listen = []string{address} }
}

// pair is two networks that are connected.
func pair(t testing.TB, change ...func(*Spec)) (a, b *Network) {
	t.Helper()
	a = open(t, 1, change...)
	b = open(t, 2, append(change, withBootstrap(a))...)
	testkit.WaitFor(t, "two networks know each other", func() bool { return a.Size() == 1 && b.Size() == 1 })
	return a, b
}

// budget is a context for one call that is generous on a busy machine.
func budget(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func objectNo(no int) b3.Address {
	return b3.Of(binary.BigEndian.AppendUint64([]byte("object"), uint64(no)))
}

func asks(address b3.Address) record.Question {
	return record.Question{Kind: record.CID, Address: address}
}

// peerNo is the ID in the overlay of the node with that key.
func peerNo(no int) oap.PeerID { return oap.PeerIDOf(publicNo(no)) }

// signed is a record that the node with that key has signed.
func signed(no int, name string, seq uint64, manifest int) record.Name {
	now := time.Now()
	return record.SignName(keyNo(no), record.Name{Name: name, Manifest: objectNo(manifest), Seq: seq, Issued: now, Expires: now.Add(time.Hour)})
}

func asksName(no int, name string) record.Question {
	return record.Question{Kind: record.ByName, Name: name, Owner: peerNo(no)}
}

// maliciousPeer is a peer that speaks the protocol and sends arbitrary answers.
type maliciousPeer struct {
	host *bhost.BasicHost
	id   peer.ID
}

// reply is how a malicious peer handles a request: it writes anything to the
// stream. If it returns false the stream is reset.
type reply func(s network.Stream, question *pb.Message) bool

func openMaliciousPeer(t testing.TB, no int, reply reply) *maliciousPeer {
	t.Helper()
	silenceLogs()
	p, err := Spec{Key: keyNo(no), Listen: []string{"127.0.0.1:0"}, Reach: onThisMachine}.resolve()
	testkit.Must(t, err)
	host, _, err := openHost(p)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = host.Close() })
	host.SetStreamHandler("/micronode/kad/1.0.0", func(s network.Stream) {
		reader := msgio.NewVarintReaderSize(s, network.MessageSizeMax)
		for {
			raw, err := reader.ReadMsg()
			if err == io.EOF {
				_ = s.Close()
				return
			}
			question := new(pb.Message)
			if err != nil || proto.Unmarshal(raw, question) != nil || !reply(s, question) {
				_ = s.Reset()
				return
			}
		}
	})
	return &maliciousPeer{host: host, id: host.ID()}
}

// connectTo puts a malicious peer into the routing table of an honest network:
// it behaves correctly until then.
func (m *maliciousPeer) connectTo(t testing.TB, n *Network) {
	t.Helper()
	info := peer.AddrInfo{ID: n.selfID, Addrs: n.host.Addrs()}
	testkit.Must(t, m.host.Connect(budget(t), info))
	testkit.WaitFor(t, "the liar is in the routing table", func() bool { return n.dht.RoutingTable().Find(m.id) != "" })
}

// answeringFindNode answers what is needed to be added to a routing table, and
// leaves the rest to another reply.
func answeringFindNode(rest reply) reply {
	return func(s network.Stream, q *pb.Message) bool {
		if q.GetType() == pb.Message_FIND_NODE {
			return write(s, pb.NewMessage(q.GetType(), nil, 0))
		}
		return rest(s, q)
	}
}

// write sends an answer.
func write(s network.Stream, m *pb.Message) bool {
	raw, err := proto.Marshal(m)
	if err != nil {
		return false
	}
	return writeRaw(s, raw)
}

func writeRaw(s network.Stream, raw []byte) bool {
	_, err := io.Copy(s, bytes.NewReader(append(binary.AppendUvarint(nil, uint64(len(raw))), raw...)))
	return err == nil
}

// askClosest asks the one closest peer.
func askClosest(t testing.TB, n *Network, q record.Question) (record.Answer, error) {
	t.Helper()
	targets := n.Closest(q, 1)
	if len(targets) != 1 {
		t.Fatalf("%d targets", len(targets))
	}
	return targets[0].Ask(budget(t), q)
}
