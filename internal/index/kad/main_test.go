package kad

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
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
	"micronode/internal/flow"
	"micronode/internal/index/record"
	"micronode/internal/oap"
	"micronode/internal/supervise"
)

func TestMain(m *testing.M) {
	confinedChild()
	goleak.VerifyTestMain(m)
}

// keyNo is a key that is the same in every run.
func keyNo(no int) ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	binary.BigEndian.PutUint32(seed, uint32(no))
	return ed25519.NewKeyFromSeed(seed)
}

func publicNo(no int) ed25519.PublicKey { return keyNo(no).Public().(ed25519.PublicKey) }

// tasks runs the searches of the networks of a test.
func tasks(t testing.TB) *supervise.Group {
	t.Helper()
	sup, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "all"}}, Total: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	group, err := sup.NewGroup(supervise.GroupSpec{Service: "index", Kind: "dht", Stage: "all", Max: 64})
	if err != nil {
		t.Fatal(err)
	}
	return group
}

// open makes a network on loopback that is closed with the test.
func open(t testing.TB, no int, change ...func(*Spec)) *Network {
	t.Helper()
	spec := Spec{Key: keyNo(no), Listen: []string{"127.0.0.1:0"}, Tasks: tasks(t)}
	for _, c := range change {
		c(&spec)
	}
	n, err := Open(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return n
}

// from begins with other networks.
func from(others ...*Network) func(*Spec) {
	return func(s *Spec) {
		for _, o := range others {
			s.Bootstrap = append(s.Bootstrap, o.Addrs()...)
		}
	}
}

// onFreePort listens where nobody else does, for a network that leaves and comes
// back. The port is below those that the kernel gives to whoever asks for any:
// such a one could go to somebody's connection meanwhile, even to the one that
// is to reach it.
func onFreePort(t testing.TB) func(*Spec) {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(12_000))
		if l, err := net.Listen("tcp", address); err == nil {
			_ = l.Close()
			return func(s *Spec) { s.Listen = []string{address} }
		}
	}
	t.Fatal("a hundred ports are taken")
	return nil
}

// until waits for something that is sure to come.
func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
		_ = flow.Sleep(t.Context(), 5*time.Millisecond)
	}
}

// pair is two networks that know each other.
func pair(t testing.TB, change ...func(*Spec)) (a, b *Network) {
	t.Helper()
	a = open(t, 1, change...)
	b = open(t, 2, append(change, from(a))...)
	until(t, "two networks know each other", func() bool { return a.Size() == 1 && b.Size() == 1 })
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
	return record.Question{Kind: record.ByName, Name: name, Of: peerNo(no)}
}

// liar is a peer that speaks the protocol and answers as it likes.
type liar struct {
	host *bhost.BasicHost
	id   peer.ID
}

// reply is what a liar does with a question: it writes to the stream whatever
// it wants. If it returns false the stream is reset.
type reply func(s network.Stream, question *pb.Message) bool

func lie(t testing.TB, no int, reply reply) *liar {
	t.Helper()
	quiet()
	p, err := Spec{Key: keyNo(no), Listen: []string{"127.0.0.1:0"}}.complete()
	if err != nil {
		t.Fatal(err)
	}
	host, _, err := openHost(p)
	if err != nil {
		t.Fatal(err)
	}
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
	return &liar{host: host, id: host.ID()}
}

// meet puts a liar into the routing table of an honest network: it is polite
// until then.
func (l *liar) meet(t testing.TB, n *Network) {
	t.Helper()
	info := peer.AddrInfo{ID: n.own, Addrs: n.host.Addrs()}
	if err := l.host.Connect(budget(t), info); err != nil {
		t.Fatal(err)
	}
	until(t, "the liar is in the routing table", func() bool { return n.dht.RoutingTable().Find(l.id) != "" })
}

// politely answers what it takes to be let in, and leaves the rest to another.
func politely(rest reply) reply {
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

// only asks the one peer that is near.
func only(t testing.TB, n *Network, q record.Question) (record.Answer, error) {
	t.Helper()
	targets := n.Near(q, 1)
	if len(targets) != 1 {
		t.Fatalf("%d targets", len(targets))
	}
	return targets[0].Ask(budget(t), q)
}
