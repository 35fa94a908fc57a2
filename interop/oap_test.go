package interop

import (
	"bytes"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The peer in oap/ was written in Python from docs/oap1.md, before its author
// read our code. Where node and peer disagree, one of them is wrong, or the
// document is.
const (
	oapVectors  = "../internal/oap/testdata/vectors.json"
	oapDocument = "../docs/oap1.md"
	oapSeed     = "0707070707070707070707070707070707070707070707070707070707070707" // that of the document
	oapPeer     = "m2cks5r3anb4aaok7kdl3osd4fsulcqjix7iynu4yfvlkfocjpta"
)

// oapTimeout bounds every wait for the other process.
const oapTimeout = 30 * time.Second

// python runs one of our scripts. It leaves no compiled files behind.
func python(t *testing.T, script string, arguments ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal("python3 is needed here: install it, or run make interop, which does")
	}
	return exec.Command(path, append([]string{"-B", filepath.Join("oap", script)}, arguments...)...)
}

func TestOAPVectors(t *testing.T) {
	var complaints bytes.Buffer
	run := python(t, "vectors.py", oapVectors, oapDocument)
	run.Stderr = &complaints
	out, err := run.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &complaints)
	}
	var tally struct{ Failed, Frames, Messages, Letters, Introductions, Trees, Steps int }
	if err := json.Unmarshal(out, &tally); err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", tally)
	if tally.Failed > 0 || tally.Frames < 20 || tally.Messages < 45 || tally.Letters < 10 || tally.Introductions < 8 || tally.Trees < 5 || tally.Steps != 12 {
		t.Errorf("%+v\n%s", tally, &complaints)
	}
}

// TestOAP connects the real node and the Python peer.
func TestOAP(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "micronode")
	if out, err := exec.Command("go", "build", "-C", "..", "-o", binary, "./cmd/micronode").CombinedOutput(); err != nil {
		t.Fatalf("go build ./cmd/micronode: %v\n%s", err, out)
	}
	for name, test := range map[string]func(*testing.T, *micronode, *pythonPeer){
		"a stranger is refused":             oapStranger,
		"pings":                             oapPings,
		"messages from the node":            oapMessagesFromNode,
		"messages from the peer":            oapMessagesFromPeer,
		"messages that were missed":         oapMissedMessages,
		"an object from the node":           oapObjectFromNode,
		"an object from the peer":           oapObjectFromPeer,
		"what breaks the rules":             oapBrokenRules,
		"what is ignored, or refused alone": oapToleratedFrames,
		"bye, from either side":             oapByes,
	} {
		t.Run(name, func(t *testing.T) { test(t, startNode(t, binary), startPeer(t)) })
	}
}

// oapConnect admits the peer. Its address has no listener, so that it is the
// peer that dials.
func oapConnect(n *micronode, p *pythonPeer, compress bool) peerEvent {
	n.do("peers", "add", oapPeer+"@127.0.0.1:1")
	return n.dialFrom(p, compress)
}

func oapStranger(t *testing.T, n *micronode, p *pythonPeer) {
	p.do(peerCommand{"do": "dial", "peer": n.peerSpec})
	if h := p.next(); h.Event != "failed" || !strings.Contains(h.Why, "Unauth") {
		t.Errorf("a peer that the node does not know: %+v", h)
	}
	n.do("peers", "add", oapPeer+"@127.0.0.1:1")
	p.do(peerCommand{"do": "dial", "peer": oapPeer + n.peerSpec[len(oapPeer):]})
	if h := p.next(); h.Event != "failed" || !strings.Contains(h.Why, "Stranger") {
		t.Errorf("a node that is not the one that was called: %+v", h)
	}
}

func oapPings(t *testing.T, n *micronode, p *pythonPeer) {
	session := oapConnect(n, p, false)
	if session.TLS != "TLSv1.3" || session.Chunk != 65536 || session.MaxFrame != 1<<20 || session.Comp != "" {
		t.Errorf("the session is %+v", session)
	}
	p.do(peerCommand{"do": "ping"})
	asked := p.await("pinged")
	if pong := p.await("pong"); pong.Corr != asked.Corr || pong.TS != asked.TS {
		t.Errorf("the pong of %+v is %+v", asked, pong)
	}
	if list := n.do("peers"); !strings.Contains(list, oapPeer) || !strings.Contains(list, "active") {
		t.Errorf("the node's peers:\n%s", list)
	}
}

// The second message is long enough for the node to compress it.
func oapMessagesFromNode(t *testing.T, n *micronode, p *pythonPeer) {
	if session := oapConnect(n, p, true); session.Comp != "zstd" {
		t.Fatalf("the session is %+v", session)
	}
	for _, text := range []string{"storm", strings.Repeat("storm from the west. ", 400) + "north"} {
		before := uint64(time.Now().UnixMilli())
		id, _, _ := strings.Cut(n.do("pub", "news/eu", text), " ")
		h := p.await("letter")
		if "b3:"+h.ID != id || h.Origin != n.id || h.Topic != "news/eu" || h.Data != hex.EncodeToString([]byte(text)) {
			t.Errorf("the node published %s; the peer verified %+v", id, h)
		}
		if after := uint64(time.Now().UnixMilli()); h.TS < before || h.TS > after || h.Hops != 8 || h.Fanout != 3 {
			t.Errorf("between %d and %d the peer got %+v", before, after, h)
		}
	}
}

// One message is pushed, one is pushed in a zstd frame, and one is announced,
// so that the node has to request it.
func oapMessagesFromPeer(t *testing.T, n *micronode, p *pythonPeer) {
	oapConnect(n, p, true)
	for _, o := range []peerCommand{
		{"do": "publish"}, {"do": "publish", "compress": true}, {"do": "announce"},
	} {
		text := fmt.Sprintf("words %v %s", o, strings.Repeat("x", 20<<10))
		o["topic"], o["data"] = "news/eu", hex.EncodeToString([]byte(text))
		printed := n.subscribe("news/eu")
		p.do(o)
		sent := p.await(map[any]string{"publish": "published", "announce": "announced"}[o["do"]])
		if sent.Event == "announced" {
			if want := p.await("want"); len(want.IDs) != 1 || want.IDs[0] != sent.ID || want.Held != 1 {
				t.Errorf("after have %s the node wants %+v", sent.ID, want)
			}
		}
		var m struct {
			Origin, Topic, ID string
			Data              []byte
			Signed            bool
		}
		if err := json.Unmarshal(printed(), &m); err != nil {
			t.Fatal(err)
		}
		if m.Origin != oapPeer || m.Topic != "news/eu" || m.ID != "b3:"+sent.ID || string(m.Data) != text || !m.Signed {
			t.Errorf("the peer sent %+v; sub printed %.200v", sent, m)
		}
	}
}

// What was published while the peer was away is announced when it connects, and
// sent when it requests it.
func oapMissedMessages(t *testing.T, n *micronode, p *pythonPeer) {
	n.do("peers", "add", oapPeer+"@127.0.0.1:1")
	id, _, _ := strings.Cut(n.do("pub", "news/eu", "while you were out"), " ")
	n.dialFrom(p, false)
	if have := p.await("have"); len(have.IDs) != 1 || "b3:"+have.IDs[0] != id || have.Wanted != 1 {
		t.Errorf("the node has %s and announces %+v", id, have)
	}
	if h := p.await("letter"); "b3:"+h.ID != id || h.Origin != n.id {
		t.Errorf("the peer wanted %s and got %+v", id, h)
	}
}

// The example of the document: 1,500,000 bytes, of which ten chunks are kept
// when the stream ends, and thirteen remain.
func oapObjectFromNode(t *testing.T, n *micronode, p *pythonPeer) {
	oapConnect(n, p, false)
	data, path := oapObject(t, 1_500_000)
	obj, _, _ := strings.Cut(n.do("put", path), " ")
	p.do(peerCommand{"do": "fetch", "obj": obj, "stop_after": 10})
	if h := p.await("fetched"); h.Status != "Canceled" || h.Chunks != 10 || h.Size != 655_360 {
		t.Errorf("stopped after ten chunks: %+v", h)
	}
	p.do(peerCommand{"do": "fetch", "obj": obj})
	if h := p.await("fetched"); h.Status != "ok" || h.Start != 655_360 || h.Chunks != 13 || h.Size != len(data) {
		t.Errorf("the rest: %+v", h)
	}
	saved := filepath.Join(t.TempDir(), "saved")
	p.do(peerCommand{"do": "save", "obj": obj, "path": saved})
	p.await("saved")
	if got, err := os.ReadFile(saved); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes that are not those of the object, %v", len(got), err)
	}
	_, path = oapObject(t, 17*65536+1) // without an ack the node would stop after 16 chunks
	obj, _, _ = strings.Cut(n.do("put", path), " ")
	p.do(peerCommand{"do": "fetch", "obj": obj})
	if h := p.await("fetched"); h.Status != "ok" || h.Chunks != 18 {
		t.Errorf("an object that takes more than the credit: %+v", h)
	}
	p.do(peerCommand{"do": "fetch", "obj": "b3:" + strings.Repeat("0", 64)})
	if h := p.await("fetched"); h.Status != "NotFound" {
		t.Errorf("an object that nobody has: %+v", h)
	}
}

// The object has more chunks than the credit allows at once.
func oapObjectFromPeer(t *testing.T, n *micronode, p *pythonPeer) {
	oapConnect(n, p, true)
	data, path := oapObject(t, 1_200_000)
	p.do(peerCommand{"do": "hold", "path": path})
	obj := p.await("holding").Obj
	got := filepath.Join(t.TempDir(), "got")
	n.do("get", obj, "--peer", oapPeer, "-o", got)
	if h := p.await("gave"); h.Obj != obj || h.Chunks != 19 {
		t.Errorf("the peer gave %+v", h)
	}
	if fetched, err := os.ReadFile(got); err != nil || !bytes.Equal(fetched, data) {
		t.Errorf("%d bytes that are not those of the object, %v", len(fetched), err)
	}
	if out, err := n.command("get", "b3:"+strings.Repeat("1", 64), "--peer", oapPeer, "-o", got).CombinedOutput(); err == nil || !strings.Contains(string(out), "none of the 1 peers") {
		t.Errorf("an object that the peer does not have: %v\n%s", err, out)
	}
}

// oapBrokenRules has one session for each, because each ends it.
func oapBrokenRules(t *testing.T, n *micronode, p *pythonPeer) {
	_, path := oapObject(t, 1_500_000)
	obj, _, _ := strings.Cut(n.do("put", path), " ")
	n.do("peers", "add", oapPeer+"@127.0.0.1:1")
	start := sayCommand(1, peerCommand{"kind": "start", "stream": 1, "obj": obj})
	for name, test := range map[string]struct {
		code   string
		corr   uint64 // the hello was 1
		orders []peerCommand
	}{
		"a length over the cap":           {"FrameTooLarge", 0, []peerCommand{rawCommand("ffffffff")}},
		"a length under the header":       {"Malformed", 0, []peerCommand{rawCommand("0000001a")}},
		"another version":                 {"BadVersion", 0, []peerCommand{rawCommand("0000001d02")}},
		"a tenant":                        {"Malformed", 0, []peerCommand{rawCommand("0000001d0100010000000000000000000000000000000111223344556677886869")}},
		"compressed without an agreement": {"Malformed", 0x1122334455667788, []peerCommand{rawCommand("0000002601000900000000000000000000000000000000112233445566778828b52ffd20021100006869")}},
		"not a message":                   {"Malformed", 0x1122334455667788, []peerCommand{rawCommand("0000001d0100010000000000000000000000000000000011223344556677886869")}},
		"a key that is missing":           {"Malformed", 2, []peerCommand{sayCommand(4, peerCommand{"kind": "bye"})}},
		"a second hello":                  {"Malformed", 2, []peerCommand{sayCommand(1, peerCommand{"kind": "hello", "versions": []int{1}, "features": peerCommand{}, "max_frame": 1})}},
		"a hello_ack":                     {"Malformed", 2, []peerCommand{sayCommand(2, peerCommand{"kind": "hello_ack", "chosen": peerCommand{"ver": 1}, "limits": peerCommand{"chunk": 1, "max_frame": 1}})}},
		"a number of the other side":      {"Malformed", 2, []peerCommand{sayCommand(1, peerCommand{"kind": "start", "stream": 2, "obj": obj})}},
		"a number that is open":           {"Malformed", 3, []peerCommand{start, start}},
		"an ack of what was not sent":     {"Malformed", 3, []peerCommand{start, sayCommand(4, peerCommand{"kind": "ack", "stream": 1, "up_to": 40})}},
		"data from the side that asked":   {"Malformed", 3, []peerCommand{start, sayCommand(2, peerCommand{"kind": "data", "stream": 1, "seq": 0, "bytes": "00"})}},
	} {
		n.dialFrom(p, false)
		for _, o := range test.orders {
			p.do(o)
		}
		if h := p.await("error"); h.Code != test.code || h.Corr != test.corr {
			t.Errorf("%s: %+v", name, h)
		}
		if h := p.await("closed"); !h.Clean {
			t.Errorf("%s: %+v", name, h)
		}
	}
}

// oapToleratedFrames are frames that are rejected or ignored, and the session
// stays open. That is checked with a request that is always rejected: pings are
// rate-limited.
func oapToleratedFrames(t *testing.T, n *micronode, p *pythonPeer) {
	oapConnect(n, p, false)
	p.do(sayCommand(1, peerCommand{"kind": "example.later", "x": 1}))
	said := p.await("said")
	if h := p.await("error"); h.Code != "Malformed" || h.Corr != said.Corr || h.About != "example.later" {
		t.Errorf("a request of an unknown kind: %+v", h)
	}
	bogus := peerCommand{"kind": "gossip", "hops": 8, "fanout": 3, "msg": "00", "sig": strings.Repeat("00", 64)}
	for name, o := range map[string]peerCommand{
		"an event of an unknown kind":        sayCommand(4, peerCommand{"kind": "example.later"}),
		"an answer of an unknown kind":       sayCommand(2, peerCommand{"kind": "example.later"}),
		"a pong that nobody asked for":       sayCommand(2, peerCommand{"kind": "pong", "ts": 1}),
		"what is not a message":              sayCommand(4, bogus),
		"an ack for a stream that never was": sayCommand(4, peerCommand{"kind": "ack", "stream": 77, "up_to": 3}),
		"data for a stream that never was":   sayCommand(2, peerCommand{"kind": "data", "stream": 78, "seq": 0, "bytes": "00"}),
		"an end for a stream that never was": sayCommand(4, peerCommand{"kind": "end", "stream": 77, "seq": 0, "status": "ok"}),
		"ids that nobody has":                {"do": "want", "ids": []string{strings.Repeat("00", 32)}},
	} {
		p.do(o)
		p.do(sayCommand(1, peerCommand{"kind": "example." + strings.ReplaceAll(name, " ", ".")}))
		h := p.next()
		for ; h.Event == "said"; h = p.next() {
		}
		if h.Event != "error" || !strings.HasPrefix(h.About, "example.") {
			t.Fatalf("%s: %+v", name, h)
		}
	}
}

// oapByes: first the peer sends a Bye, then it connects again, and then the
// node sends one.
func oapByes(t *testing.T, n *micronode, p *pythonPeer) {
	oapConnect(n, p, false)
	p.do(peerCommand{"do": "bye"})
	if h := p.await("closed"); !h.Clean || h.Why != "bye" {
		t.Errorf("after the peer's bye: %+v", h)
	}
	n.awaitMetric(`session_close_total{reason="bye",service="overlay"} 1`)
	n.dialFrom(p, false)
	n.signal(syscall.SIGTERM)
	if h := p.await("bye"); h.Reason != "draining" {
		t.Errorf("the node says bye, %+v", h)
	}
	if h := p.await("closed"); !h.Clean {
		t.Errorf("after the node's bye: %+v", h)
	}
	if err := n.wait(); err != nil {
		t.Errorf("the node ended with %v\n%s", err, n.output)
	}
}

// oapObject is a file with bytes that do not repeat.
func oapObject(t *testing.T, size int) (data []byte, path string) {
	t.Helper()
	data, path = make([]byte, size), filepath.Join(t.TempDir(), "object")
	_, _ = rand.NewChaCha8([32]byte{byte(size >> 8)}).Read(data)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return data, path
}

// The frames of a listener, from the session at the end of the document: what
// the node itself never sends can reach the peer only this way.
const (
	oapHelloAck = "0000006e010002000000000000000000000000000000000000000000000001" +
		"a3646b696e646968656c6c6f5f61636b6663686f73656ea362707166687962726964637665720164636f6d70647a7374" +
		"64666c696d697473a2656368756e6b1a00010000696d61785f6672616d651a00100000"
	oapPing            = "00000032010001000000000000000000000000000000000000000000000004a26274731b0000018bcfe57b88646b696e646470696e67"
	oapPong            = "00000032010002000000000000000000000000000000000000000000000004a26274731b0000018bcfe57b88646b696e6464706f6e67"
	oapUnknownRequest  = "0000002a010001000000000000000000000000000000000000000000000005a2617801646b696e64656c61746572"
	oapUnknownResponse = "0000004d010002000000000000000000000000000000000000000000000005" +
		"a3636d736772756e6b6e6f776e206b696e64206c6174657264636f6465694d616c666f726d6564646b696e64656572726f72"
)

func TestOAPPeerAnswersAsTheDocumentSays(t *testing.T) {
	p := startPeer(t)
	listener, id := newOAPListener(t)
	p.do(peerCommand{"do": "dial", "peer": id + "@" + listener.Addr().String(), "compress": true})
	impatience := time.AfterFunc(oapTimeout, func() { _ = listener.Close() })
	c, err := listener.Accept()
	impatience.Stop()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(oapTimeout))
	if hello := readFrame(t, c); !strings.Contains(hello, hex.EncodeToString([]byte("hello"))) {
		t.Fatalf("the first frame is %s", hello)
	}
	writeFrame(t, c, oapHelloAck)
	p.await("session")
	for _, pair := range [][2]string{{oapUnknownRequest, oapUnknownResponse}, {oapPing, oapPong}} {
		writeFrame(t, c, pair[0])
		if got := readFrame(t, c); got != pair[1] {
			t.Errorf("the answer to %s is\n     %s\nnot  %s", pair[0], got, pair[1])
		}
	}
	writeFrame(t, c, "0000001d0100010000000000000000000000000000000111223344556677886869") // a tenant
	answer := readFrame(t, c)
	if flagsAndCorr := answer[10:14] + answer[46:62]; flagsAndCorr != "0004"+strings.Repeat("0", 16) ||
		!strings.Contains(answer, hex.EncodeToString([]byte("Malformed"))) {
		t.Errorf("the answer to a tenant is %s", answer)
	}
	if n, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("after it, %d bytes and %v, not the end", n, err)
	}
}

// newOAPListener presents a certificate and requests one, and checks nothing.
func newOAPListener(t *testing.T) (net.Listener, string) {
	t.Helper()
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{8}, ed25519.SeedSize))
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	certificate, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"ron/oap1"}, ClientAuth: tls.RequireAnyClientCert,
		Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener, "luzwknykbn7njjvspg62st5sxkn6mvpk2tinj47cmdubnhwniu4a" // the second of the document
}

func writeFrame(t *testing.T, to io.Writer, text string) {
	t.Helper()
	frame, err := hex.DecodeString(text)
	if err == nil {
		_, err = to.Write(frame)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func readFrame(t *testing.T, from io.Reader) string {
	t.Helper()
	frame := make([]byte, 4)
	_, err := io.ReadFull(from, frame)
	if err == nil {
		frame = append(frame, make([]byte, binary.BigEndian.Uint32(frame))...)
		_, err = io.ReadFull(from, frame[4:])
	}
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(frame)
}

// micronode is a node in a process of its own.
type micronode struct {
	t        *testing.T
	binary   string
	socket   string
	process  *exec.Cmd
	output   *bytes.Buffer // owned by the process until it has ended
	ended    chan error
	id       string
	peerSpec string // ID@HOST:PORT
}

func startNode(t *testing.T, binary string) *micronode {
	t.Helper()
	n := &micronode{t: t, binary: binary, output: &bytes.Buffer{}, ended: make(chan error, 1)}
	n.socket = fmt.Sprintf("micronode-interop-%d-%d", os.Getpid(), time.Now().UnixNano())
	n.process = exec.Command(binary, "run", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--overlay", "127.0.0.1:0", "--socket", n.socket)
	n.process.Stdout, n.process.Stderr = n.output, n.output
	if err := n.process.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { n.ended <- n.process.Wait() }()
	t.Cleanup(n.kill)
	n.do("status", "--wait", "10s")
	status := n.status()
	n.id, n.peerSpec = status.PeerID, status.PeerID+"@"+status.Listen.Overlay
	return n
}

// kill ends the node if it still runs, and waits for that.
func (m *micronode) kill() {
	_ = m.process.Process.Kill()
	_ = m.wait()
}

func (m *micronode) wait() error {
	select {
	case err := <-m.ended:
		m.ended <- nil // for the next receiver
		return err
	case <-time.After(oapTimeout):
		return errors.New("the node does not end")
	}
}

func (m *micronode) signal(signal os.Signal) {
	m.t.Helper()
	if err := m.process.Process.Signal(signal); err != nil {
		m.t.Fatal(err)
	}
}

// command is a command of the node. It is killed with the test.
func (m *micronode) command(line ...string) *exec.Cmd {
	return exec.CommandContext(m.t.Context(), m.binary, append(line, "--socket", m.socket)...)
}

// do runs a command that must succeed, and returns what it printed.
func (m *micronode) do(line ...string) string {
	m.t.Helper()
	var complaints bytes.Buffer
	command := m.command(line...)
	command.Stderr = &complaints
	out, err := command.Output()
	if err != nil {
		m.t.Fatalf("micronode %s: %v\n%s", line[0], err, &complaints)
	}
	return string(out)
}

type nodeStatus struct {
	PeerID string `json:"peer_id"`
	Listen struct{ Admin, Overlay string }
	Queues []struct{ Service, Name string }
}

func (m *micronode) status() (status nodeStatus) {
	m.t.Helper()
	if err := json.Unmarshal([]byte(m.do("status", "--json")), &status); err != nil {
		m.t.Fatal(err)
	}
	return status
}

// awaitMetric waits until the node's metrics have a line. The node counts a
// session when all of it has ended, which may be after the peer saw the end.
func (m *micronode) awaitMetric(line string) {
	m.t.Helper()
	url, metrics := "http://"+m.status().Listen.Admin+"/metrics", ""
	for deadline := time.Now().Add(oapTimeout); !strings.Contains(metrics, line); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			m.t.Fatalf("the node's metrics do not come to %s", line)
		}
		answer, err := http.Get(url)
		if err != nil {
			m.t.Fatal(err)
		}
		text, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		metrics = string(text)
	}
}

// dialFrom has the peer dial the node.
func (m *micronode) dialFrom(p *pythonPeer, compress bool) peerEvent {
	m.t.Helper()
	p.do(peerCommand{"do": "dial", "peer": m.peerSpec, "compress": compress})
	return p.await("session")
}

// subscribe runs sub until one message arrived, which the returned function
// waits for. It returns when the node has the subscriber.
func (m *micronode) subscribe(topic string) (printed func() []byte) {
	m.t.Helper()
	var out bytes.Buffer
	command := m.command("sub", topic, "--json", "--count", "1", "--timeout", oapTimeout.String())
	command.Stdout, command.Stderr = &out, &out
	if err := command.Start(); err != nil {
		m.t.Fatal(err)
	}
	for deadline := time.Now().Add(oapTimeout); !m.hasSubscriber(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			m.t.Fatal("nobody subscribed")
		}
	}
	return func() []byte {
		m.t.Helper()
		if err := command.Wait(); err != nil {
			m.t.Fatalf("micronode sub: %v\n%s", err, &out)
		}
		return out.Bytes()
	}
}

func (m *micronode) hasSubscriber() bool {
	m.t.Helper()
	for _, queue := range m.status().Queues {
		if queue.Service == "overlay" && queue.Name == "deliveries" {
			return true
		}
	}
	return false
}

// pythonPeer is the Python peer: a line in for each command, a line out for
// each event.
type pythonPeer struct {
	t      *testing.T
	in     io.Writer
	lines  chan peerEvent
	output *bytes.Buffer
}

// peerCommand is a line for the peer, or a message in it.
type peerCommand map[string]any

func sayCommand(flags int, message peerCommand) peerCommand {
	return peerCommand{"do": "say", "flags": flags, "message": message}
}

func rawCommand(text string) peerCommand { return peerCommand{"do": "raw", "hex": text} }

// peerEvent is a line of the peer; each event has some of these.
type peerEvent struct {
	Event, Peer, Why, Reason, Kind, About, Code     string
	ID, Topic, Data, Origin, Obj, Status, Comp, TLS string
	Corr, TS, Hops, Fanout                          uint64
	Chunk, Chunks, Start, Size, Held, Wanted        int
	Groups, Files                                   int
	MaxFrame                                        int `json:"max_frame"`
	IDs, Paths                                      []string
	Clean                                           bool
}

func startPeer(t *testing.T) *pythonPeer {
	t.Helper()
	process := python(t, "peer.py", oapSeed)
	p := &pythonPeer{t: t, lines: make(chan peerEvent, 64), output: &bytes.Buffer{}}
	process.Stderr = p.output
	in, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go p.readEvents(out, read)
	p.in = in
	t.Cleanup(func() {
		_ = process.Process.Kill()
		<-read
		_ = process.Wait()
		if t.Failed() && p.output.Len() > 0 {
			t.Logf("the peer said:\n%s", p.output)
		}
	})
	if h := p.await("ready"); h.Peer != oapPeer {
		t.Fatalf("the peer calls itself %s; the document, %s", h.Peer, oapPeer)
	}
	return p
}

func (p *pythonPeer) readEvents(out io.Reader, done chan struct{}) {
	defer close(done)
	defer close(p.lines)
	for lines := json.NewDecoder(out); ; {
		var h peerEvent
		if lines.Decode(&h) != nil {
			return
		}
		select {
		case p.lines <- h:
		case <-p.t.Context().Done():
		}
	}
}

func (p *pythonPeer) do(o peerCommand) {
	p.t.Helper()
	line, err := json.Marshal(o)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		p.t.Fatal(err)
	}
}

// next is the next event of the peer.
func (p *pythonPeer) next() peerEvent {
	p.t.Helper()
	select {
	case h, ok := <-p.lines:
		if !ok {
			p.t.Fatal("the peer ended")
		}
		return h
	case <-time.After(oapTimeout):
		p.t.Fatal("the peer hears nothing")
	}
	return peerEvent{}
}

// await waits for an event and skips others.
func (p *pythonPeer) await(event string) peerEvent {
	p.t.Helper()
	for {
		h := p.next()
		if h.Event == event {
			return h
		}
		if h.Event == "failed" || h.Event == "dropped" || h.Event == "closed" {
			p.t.Fatalf("instead of %s: %+v", event, h)
		}
	}
}
