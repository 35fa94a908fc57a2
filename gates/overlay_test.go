//go:build gates

package gates

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/oap"
)

// rawPeer speaks OAP/1 over TLS without any of the node's own code but the
// frames, so that it can violate the protocol.
type rawPeer struct {
	t    *testing.T
	id   oap.PeerID
	key  ed25519.PrivateKey
	cert tls.Certificate
	seq  uint64
}

func newRawPeer(t *testing.T) *rawPeer {
	t.Helper()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		t.Fatal(err)
	}
	return &rawPeer{t: t, id: oap.PeerIDOf(public), key: key, seq: uint64(time.Now().UnixMilli()) << 20,
		cert: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}}
}

// dial opens a connection and does the handshake.
func (r *rawPeer) dial(addr string) *tls.Conn {
	r.t.Helper()
	dialer := &tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"ron/oap1"},
		InsecureSkipVerify: true, Certificates: []tls.Certificate{r.cert}}}
	conn, err := dialer.DialContext(r.t.Context(), "tcp", addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	hello, err := oap.Codec{Max: oap.MaxPayload}.AppendMessage(nil, oap.Req, 1, &oap.Hello{
		Versions: []uint64{1}, Features: oap.Features{PQ: "hybrid"}, MaxFrame: oap.MaxPayload})
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := conn.Write(hello); err != nil {
		r.t.Fatal(err)
	}
	frame, err := oap.NewReader(conn, oap.Codec{Max: oap.MaxPayload}).Next()
	if err != nil {
		r.t.Fatal(err)
	}
	if m, err := oap.Decode(frame.Payload); err != nil {
		r.t.Fatal(err)
	} else if _, welcome := m.(*oap.HelloAck); !welcome {
		r.t.Fatalf("answered %#v", m)
	}
	return conn.(*tls.Conn)
}

// signedFrames makes frames of signed gossip beforehand: signing takes longer
// than sending. Forged ones have a signature that must be verified to be found
// wrong.
func (r *rawPeer) signedFrames(topic string, n, size int, forged bool) [][]byte {
	r.t.Helper()
	frames := make([][]byte, n)
	for i := range frames {
		r.seq++
		message := oap.GossipMessage{Topic: topic, Key: [32]byte(r.key.Public().(ed25519.PublicKey)), Seq: r.seq, TS: uint64(time.Now().UnixMilli()), Data: make([]byte, size)}
		sealed, _, err := message.Seal(r.key)
		if err != nil {
			r.t.Fatal(err)
		}
		sealed.Hops, sealed.Fanout = 8, 3
		if forged {
			sealed.Sig[0] ^= 1
		}
		if frames[i], err = (oap.Codec{Max: oap.MaxPayload}).AppendMessage(nil, oap.Event, r.seq, &sealed); err != nil {
			r.t.Fatal(err)
		}
	}
	return frames
}

// overlayEndpoint is where a node's overlay listens, and its peer ID.
func (p *process) overlayEndpoint() (addr, id string) {
	p.t.Helper()
	status, err := p.local().Status(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	return status.Listen.Overlay, status.PeerID
}

// addPeer admits a peer.
func (p *process) addPeer(id oap.PeerID, addr string) {
	p.t.Helper()
	if _, err := p.local().AddPeer(p.t.Context(), id.String()+"@"+addr); err != nil {
		p.t.Fatal(err)
	}
}

// ready requests /readyz.
func (p *process) ready() (status int, body string) {
	p.t.Helper()
	answer, err := http.Get(p.admin + "/readyz")
	if err != nil {
		p.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text)
}

// exerciseOverlay connects a node to another one: a session, a message each
// way, an object.
func exerciseOverlay(t *testing.T, p *process, object b3.Address) {
	t.Helper()
	other := start(t, nil)
	addr, id := p.overlayEndpoint()
	_, otherID := other.overlayEndpoint()
	p.addPeer(must(oap.ParsePeerID(otherID)), unreachableAddr) // of two sessions, one would be closed
	other.addPeer(must(oap.ParsePeerID(id)), addr)
	here, err := p.local().Subscribe(t.Context(), "news")
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	there, err := other.local().Subscribe(t.Context(), "news")
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if fetched, err := other.local().Fetch(t.Context(), object, id); err == nil && fetched.Created {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("fetch: %+v, %v", fetched, err)
		}
	}
	if _, err := p.local().Publish(t.Context(), "news", []byte("from here")); err != nil {
		t.Fatal(err)
	}
	if message, err := there.Next(t.Context()); err != nil || string(message.Data) != "from here" {
		t.Errorf("there: %+v, %v", message, err)
	}
	if _, err := other.local().Publish(t.Context(), "news", []byte("from there")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"from here", "from there"} {
		if message, err := here.Next(t.Context()); err != nil || string(message.Data) != want {
			t.Errorf("here: %+v, %v", message, err)
		}
	}
	other.stop(syscall.SIGTERM)
}

// unreachableAddr is an address without a listener: the node dials it in vain.
const unreachableAddr = "127.0.0.1:1"

// Two peers flood the gossip queue with forged messages, each of which costs a
// verification; one alone could not fill it. They do so on a topic that needs
// no signatures: elsewhere the first of them would close the session. Messages
// of another, well-behaved peer still arrive; readiness drops, with the reason,
// and recovers; memory stays flat.
func TestFloodedGossip(t *testing.T) {
	p := start(t, nil, "MICRO_OVERLAY__GOSSIP__UNSIGNED=flood")
	addr, _ := p.overlayEndpoint()
	rude, second, polite := newRawPeer(t), newRawPeer(t), newRawPeer(t)
	p.addPeer(rude.id, unreachableAddr)
	p.addPeer(second.id, unreachableAddr)
	p.addPeer(polite.id, unreachableAddr)
	flood := rude.signedFrames("flood", 2000, 512, true)
	words := polite.signedFrames("words", 300, 64, false)

	sub, err := p.local().Subscribe(t.Context(), "words")
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	before := p.rss()
	var flooded sync.WaitGroup
	enough := make(chan struct{})
	for _, one := range []*rawPeer{rude, second} {
		conn := one.dial(addr)
		go func() { _, _ = io.Copy(io.Discard, conn) }()
		flooded.Go(func() {
			out := bufio.NewWriterSize(conn, 1<<18)
			for i := 0; ; i++ { // what was rejected is not remembered, so it may be sent again
				if _, err := out.Write(flood[i%len(flood)]); err != nil {
					return
				}
				select {
				case <-enough:
					return
				default:
				}
			}
		})
	}
	quiet := polite.dial(addr)
	go func() { _, _ = io.Copy(io.Discard, quiet) }()
	var heard atomic.Int64
	go func() {
		for {
			if _, err := sub.Next(t.Context()); err != nil {
				if errors.As(err, new(*client.Lagged)) {
					continue
				}
				return
			}
			heard.Add(1)
		}
	}()
	var fell bool
	for _, frame := range words {
		if _, err := quiet.Write(frame); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond) // a moderate rate
		if status, body := p.ready(); status == http.StatusServiceUnavailable && strings.Contains(body, "overlay/pressure") {
			fell = true
		}
	}
	close(enough)
	flooded.Wait()
	after := p.rss()
	for deadline := time.Now().Add(30 * time.Second); heard.Load() < int64(len(words)) && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	report(t, "overlay: gossip flooded with forged messages", "every polite message heard, readiness falls and returns",
		fmt.Sprintf("%d of %d heard, fell %t", heard.Load(), len(words), fell))
	t.Logf("%d of %d polite messages were received; of the rude ones %.0f were checked and rejected, %.0f dropped; readiness fell: %t; rss %d -> %d MiB",
		heard.Load(), len(words), p.metric("frame_reject_total", `"sig"`), p.metric("gossip_dropped_total", ""), fell, before>>20, after>>20)
	if heard.Load() < int64(len(words)) {
		t.Errorf("%d of %d polite messages were received", heard.Load(), len(words))
	}
	if !fell {
		t.Error("readiness did not fall")
	}
	if after > before+32<<20 {
		t.Errorf("memory grew from %d to %d MiB", before>>20, after>>20)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if status, body := p.ready(); status == http.StatusOK {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("readiness did not come back: %s", body)
		}
	}
}

// A peer that never reads does not slow down a healthy one beside it: its
// messages arrive as fast as they did before.
func TestStalledPeer(t *testing.T) {
	a, b := start(t, nil), start(t, nil)
	addrA, idA := a.overlayEndpoint()
	_, idB := b.overlayEndpoint()
	a.addPeer(must(oap.ParsePeerID(idB)), unreachableAddr) // of two sessions, one would be closed
	b.addPeer(must(oap.ParsePeerID(idA)), addrA)
	a.awaitSessions(1)
	subscription, err := b.local().Subscribe(t.Context(), "pulse")
	if err != nil {
		t.Fatal(err)
	}
	defer subscription.Close()
	retryMeasurement(t, func() error {
		quiet := measureRelay(t, a, subscription)
		stalled := newRawPeer(t)
		a.addPeer(stalled.id, unreachableAddr)
		conn := stalled.dial(addrA) // and never reads
		a.awaitSessions(2)
		flood := make([]byte, 256<<10)
		for range 64 { // more than socket buffers hold, so that a writer blocks
			if _, err := a.local().Publish(t.Context(), "flood", flood); err != nil && errorCode(err) != "Busy" {
				return err
			}
		}
		timer := watchTimer()
		busy := measureRelay(t, a, subscription)
		late := timer()
		_ = conn.Close()
		reportRatio(t, "overlay: a peer that never reads, messages to another", quiet, busy, late)
		return checkRatio("from publish to the other node", quiet, busy, late)
	})
}

func errorCode(err error) string { return fault.KindOf(err).Code() }

// awaitSessions waits until a node has n sessions.
func (p *process) awaitSessions(n int) {
	p.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		peers, err := p.local().Peers(p.t.Context())
		if err != nil {
			p.t.Fatal(err)
		}
		active := 0
		for _, one := range peers {
			if one.State == client.PeerActive || one.State == client.PeerBusy {
				active++
			}
		}
		if active >= n {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%d sessions: %+v", active, peers)
		}
	}
}

// measureRelay publishes a message every few milliseconds and returns the
// second highest latency of a hundred.
func measureRelay(t *testing.T, from *process, subscription *client.Subscription) time.Duration {
	t.Helper()
	speaker := from.local()
	var took []time.Duration
	for i := range 100 {
		began := time.Now()
		text := fmt.Sprintf("%d %d", i, began.UnixNano())
		if _, err := speaker.Publish(t.Context(), "pulse", []byte(text)); err != nil {
			t.Fatal(err)
		}
		message, err := subscription.Next(t.Context())
		if err != nil || string(message.Data) != text {
			t.Fatalf("heard %q, %v", message.Data, err)
		}
		took = append(took, time.Since(began))
		time.Sleep(3 * time.Millisecond)
	}
	slices.Sort(took)
	return took[98]
}

// A session of two nodes is post-quantum on both sides.
func TestPostQuantumSession(t *testing.T) {
	a, _, _ := firstSession(t)
	if hybrid := a.metric("overlay_pq_negotiations_total", `"hybrid"`); hybrid < 1 {
		t.Errorf("the listener counted %v hybrid handshakes", hybrid)
	}
	if classical := a.metric("overlay_pq_negotiations_total", `"classical"`); classical != 0 {
		t.Errorf("the listener counted %v others", classical)
	}
}

// Two nodes have a session soon after the second one starts.
func TestFirstSessionIsSoon(t *testing.T) {
	retryMeasurement(t, func() error {
		a, b, took := firstSession(t)
		defer a.kill()
		defer b.kill()
		report(t, "overlay: from the start of a node to its first session", "≤ 2 s", rounded(took).String())
		return checkBound(took, 2*time.Second, "from the start of the second process to the session")
	})
}

// A running node has a session soon after it is told an address.
func TestAKnownAddressIsConnectedSoon(t *testing.T) {
	retryMeasurement(t, func() error {
		folder := t.TempDir()
		ids := [2]string{newKeyFile(t, folder, "a"), newKeyFile(t, folder, "b")}
		a := startWith(t, nil, []string{"--identity", "file:" + filepath.Join(folder, "a")})
		defer a.kill()
		b := startWith(t, nil, []string{"--identity", "file:" + filepath.Join(folder, "b")})
		defer b.kill()
		addr, _ := a.overlayEndpoint()
		a.addPeer(must(oap.ParsePeerID(ids[1])), unreachableAddr)
		from := time.Now()
		b.addPeer(must(oap.ParsePeerID(ids[0])), addr)
		awaitCondition(t, b, "a session", func() bool {
			peers, err := b.local().Peers(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return len(peers) == 1 && peers[0].State == client.PeerActive
		})
		took := time.Since(from)
		report(t, "overlay: from a known address to a session with it", "≤ 100 ms", rounded(took).String())
		return checkBound(took, 100*time.Millisecond, "from the address to the session")
	})
}

// firstSession starts two nodes, and returns how long the second one took from
// its start to a session with the first.
func firstSession(t *testing.T) (a, b *process, took time.Duration) {
	t.Helper()
	folder := t.TempDir()
	ids := [2]string{newKeyFile(t, folder, "a"), newKeyFile(t, folder, "b")}
	a = startWith(t, nil, []string{"--identity", "file:" + filepath.Join(folder, "a")})
	addr, _ := a.overlayEndpoint()
	a.addPeer(must(oap.ParsePeerID(ids[1])), unreachableAddr)
	from := time.Now()
	b = startWith(t, nil, []string{"--identity", "file:" + filepath.Join(folder, "b"), "--peer", ids[0] + "@" + addr})
	awaitCondition(t, b, "a session", func() bool {
		peers, err := b.local().Peers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(peers) != 1 || peers[0].State != client.PeerActive {
			return false
		}
		if !peers[0].PQ {
			t.Fatal("the dialer says that the session is not post-quantum")
		}
		return true
	})
	return a, b, time.Since(from)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// newKeyFile makes a key file and returns its peer ID.
func newKeyFile(t *testing.T, folder, name string) string {
	t.Helper()
	out, err := exec.Command(binary, "identity", "new", "--out", filepath.Join(folder, name)).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// netnsNode is a node in a network namespace of its own.
type netnsNode struct {
	t       *testing.T
	name    string // of the namespace
	veth    string // its end of the veth pair
	addr    string
	command *exec.Cmd
	stderr  *outputBuffer
	socket  string
}

// mustRun runs a command, which must succeed.
func mustRun(t *testing.T, line ...string) string {
	t.Helper()
	out, err := exec.Command(line[0], line[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(line, " "), err, out)
	}
	return string(out)
}

// netnsCommand is a command line in the node's network namespace.
func (n *netnsNode) netnsCommand(line ...string) []string {
	return append([]string{"ip", "netns", "exec", n.name}, line...)
}

// newNetnsPair makes two network namespaces with one veth pair between them.
func newNetnsPair(t *testing.T) (a, b *netnsNode) {
	t.Helper()
	tag := fmt.Sprintf("mn%d", os.Getpid()%100000)
	a = &netnsNode{t: t, name: tag + "a", veth: tag + "va", addr: "10.77.0.1", stderr: &outputBuffer{}}
	b = &netnsNode{t: t, name: tag + "b", veth: tag + "vb", addr: "10.77.0.2", stderr: &outputBuffer{}}
	for _, one := range []*netnsNode{a, b} {
		mustRun(t, "ip", "netns", "add", one.name)
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", one.name).Run() })
		mustRun(t, one.netnsCommand("ip", "link", "set", "lo", "up")...)
		one.socket = "micronode-" + one.name
	}
	mustRun(t, "ip", "link", "add", a.veth, "netns", a.name, "type", "veth", "peer", "name", b.veth, "netns", b.name)
	for _, one := range []*netnsNode{a, b} {
		mustRun(t, one.netnsCommand("ip", "addr", "add", one.addr+"/24", "dev", one.veth)...)
		mustRun(t, one.netnsCommand("ip", "link", "set", one.veth, "up")...)
	}
	return a, b
}

// start starts the node.
func (n *netnsNode) start(key string, arguments ...string) {
	n.t.Helper()
	line := append([]string{binary, "run", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--overlay", n.addr + ":9500",
		"--socket", n.socket, "--identity", "file:" + key}, arguments...)
	line = n.netnsCommand(line...)
	n.command = exec.Command(line[0], line[1:]...)
	n.command.Env = append(os.Environ(), "MICRO_OVERLAY__IDLE=3s")
	n.command.Stdout, n.command.Stderr = n.stderr, n.stderr
	if err := n.command.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		_ = n.command.Process.Signal(os.Interrupt)
		_ = n.command.Wait()
	})
	n.do("status", "--wait", "20s")
}

// do runs a command of ours in the namespace and returns what it printed.
func (n *netnsNode) do(line ...string) string {
	n.t.Helper()
	return mustRun(n.t, n.netnsCommand(append([]string{binary}, append(line, "--socket", n.socket)...)...)...)
}

// awaitPeer waits until a peer is in a state.
func (n *netnsNode) awaitPeer(what string, holds func(client.Peer) bool) {
	n.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		var peers []client.Peer
		text := n.do("peers", "--json")
		if err := json.Unmarshal([]byte(text), &peers); err != nil {
			n.t.Fatalf("%v: %s", err, text)
		}
		if len(peers) == 1 && holds(peers[0]) {
			return
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("%s: %s\n%s", what, text, n.stderr)
		}
	}
}

// A link goes down and up again. What was published meanwhile arrives
// afterwards: each message once, none missing.
func TestPartitionAndHeal(t *testing.T) {
	if err := exec.Command("unshare", "--net", "ip", "link", "add", "mnprobe", "type", "veth").Run(); err != nil {
		t.Logf("this machine does not let us make networks of our own (%v), so no cable can be pulled; the tests of internal/overlay cut sessions instead", err)
		return
	}
	folder := t.TempDir()
	keyA, keyB := newKeyFile(t, folder, "a"), newKeyFile(t, folder, "b")
	a, b := newNetnsPair(t)
	a.start(filepath.Join(folder, "a"), "--peer", keyB+"@"+b.addr+":9500")
	b.start(filepath.Join(folder, "b"), "--peer", keyA+"@"+a.addr+":9500")
	active := func(p client.Peer) bool { return p.State == "active" && p.PQ }
	a.awaitPeer("no session", active)
	b.awaitPeer("no session", active)

	const before, during, after = 10, 20, 10
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	line := b.netnsCommand(binary, "sub", "news", "--count", fmt.Sprint(before+during+after), "--socket", b.socket)
	listener := exec.CommandContext(ctx, line[0], line[1:]...)
	var heard outputBuffer
	listener.Stdout, listener.Stderr = &heard, os.Stderr
	if err := listener.Start(); err != nil {
		t.Fatal(err)
	}
	say := func(from, n int) {
		for i := range n {
			a.do("pub", "news", fmt.Sprintf("message %d", from+i))
		}
	}
	b.awaitSubscriber()
	say(0, before)
	mustRun(t, a.netnsCommand("ip", "link", "set", a.veth, "down")...)
	pulled := time.Now()
	say(before, during)
	a.awaitPeer("the session lives on without a cable", func(p client.Peer) bool { return p.State != "active" })
	t.Logf("the partition was noticed %s after it began", time.Since(pulled).Round(time.Millisecond))
	mustRun(t, a.netnsCommand("ip", "link", "set", a.veth, "up")...)
	healed := time.Now()
	a.awaitPeer("no session after the repair", active)
	say(before+during, after)
	if err := listener.Wait(); err != nil {
		t.Fatalf("the listener: %v; it heard:\n%s", err, heard.String())
	}
	report(t, "overlay: partition and heal", "every message heard", fmt.Sprintf("%d heard %s after the cable was back", before+during+after, rounded(time.Since(healed))))
	t.Logf("all of %d messages were heard %s after the cable was back", before+during+after, time.Since(healed).Round(time.Millisecond))
	counts := map[string]int{}
	for message := range strings.Lines(heard.String()) {
		counts[strings.TrimSpace(message)]++
	}
	for i := range before + during + after {
		if n := counts[fmt.Sprintf("message %d", i)]; n != 1 {
			t.Errorf("message %d was heard %d times", i, n)
		}
	}
}

// awaitSubscriber waits until the node has a subscriber.
func (n *netnsNode) awaitSubscriber() {
	n.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		var status client.Status
		if err := json.Unmarshal([]byte(n.do("status", "--json")), &status); err != nil {
			n.t.Fatal(err)
		}
		for _, queue := range status.Queues {
			if queue.Service == "overlay" && queue.Name == "deliveries" {
				return
			}
		}
		if time.Now().After(deadline) {
			n.t.Fatal("nobody subscribed")
		}
	}
}
