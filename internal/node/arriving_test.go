package node

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"testing"

	"micronode/b3"
	"micronode/client"
	"micronode/internal/store"
	"micronode/internal/testkit"
)

// relay is a link to the overlay of a node. It counts the bytes that the node
// sends, and holds them back when there are enough.
type relay struct {
	listener net.Listener
	target   string

	mu     sync.Mutex
	passed int64
	limit  int64         // no byte passes from there on
	more   chan struct{} // closed when the limit rises, or the link is cut
	cut    bool
	conns  []net.Conn
}

func newRelay(t *testing.T, target string, limit int64) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	r := &relay{listener: listener, target: target, limit: limit, more: make(chan struct{})}
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			tasks.Go(func() { r.pass(conn) })
		}
	})
	t.Cleanup(func() {
		r.sever()
		tasks.Wait()
	})
	return r
}

// sever ends the link for good.
func (r *relay) sever() {
	_ = r.listener.Close()
	r.mu.Lock()
	if !r.cut {
		r.cut = true
		close(r.more)
	}
	conns := r.conns
	r.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close()
	}
}

// pass passes the bytes of one connection on.
func (r *relay) pass(from net.Conn) {
	defer from.Close()
	to, err := net.Dial("tcp", r.target)
	if err != nil {
		return
	}
	defer to.Close()
	r.mu.Lock()
	r.conns = append(r.conns, from, to)
	cut := r.cut
	r.mu.Unlock()
	if cut {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(to, from)
		_ = to.Close()
	}()
	buffer := make([]byte, 16<<10)
	for {
		n, err := to.Read(buffer)
		if n > 0 && (!r.admit(int64(n)) || writeAll(from, buffer[:n]) != nil) || err != nil {
			break
		}
	}
	_ = from.Close()
	<-done
}

func writeAll(to io.Writer, b []byte) error {
	_, err := to.Write(b)
	return err
}

// admit waits until n bytes may pass. It reports false if none will.
func (r *relay) admit(n int64) bool {
	for {
		r.mu.Lock()
		if r.cut {
			r.mu.Unlock()
			return false
		}
		if r.passed+n <= r.limit {
			r.passed += n
			r.mu.Unlock()
			return true
		}
		more := r.more
		r.mu.Unlock()
		<-more
	}
}

// raise lets bytes pass up to a limit.
func (r *relay) raise(limit int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limit = limit
	if !r.cut {
		close(r.more)
		r.more = make(chan struct{})
	}
}

func (r *relay) count() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.passed
}

const noLimit = 1 << 40

// givers starts nodes that have an object, each behind a link.
func givers(t *testing.T, data []byte, links ...int64) (address b3.Address, nodes []*runningNode, relays []*relay) {
	t.Helper()
	for _, limit := range links {
		n := start(t, 2, testFlag("overlay.open", "true"), testFlag("node.advertise", "http://127.0.0.1:1")) // by HTTP it would go around the link
		info, _, err := (notifyingStore{n.store, n.memory, &n.storeFull, n.onStored, n.onRemoved}).Put(t.Context(), bytes.NewReader(data), store.PutOptions{Size: int64(len(data))})
		testkit.Must(t, err)
		address = info.Address
		nodes, relays = append(nodes, n), append(relays, newRelay(t, n.overlay.Addr().String(), limit))
	}
	return address, nodes, relays
}

// meet connects the overlay of a node with the givers, through their links.
func meet(t *testing.T, local *client.Client, nodes []*runningNode, relays []*relay) {
	t.Helper()
	for i, one := range nodes {
		_, err := local.AddPeer(t.Context(), one.overlay.ID().String()+"@"+relays[i].listener.Addr().String())
		testkit.Must(t, err)
	}
	testkit.WaitFor(t, "the node has a session with each giver", func() bool {
		peers, err := local.Peers(t.Context())
		active := 0
		for _, one := range peers {
			if one.State == client.PeerActive {
				active++
			}
		}
		return err == nil && active == len(nodes)
	})
}

func randomBytes(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)}).Read(data) // it never fails
	return data
}

// open asks for something, or for some bytes of it, and returns its body as soon
// as that begins.
func (c *caller) open(t *testing.T, path, bytes string) io.ReadCloser {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.base+path, nil)
	testkit.Must(t, err)
	if bytes != "" {
		r.Header.Set("Range", "bytes="+bytes)
	}
	response, err := c.client.Do(r)
	testkit.Must(t, err)
	if response.StatusCode/100 != 2 {
		text, _ := io.ReadAll(response.Body)
		t.Fatalf("%s is %s: %s", path, response.Status, text)
	}
	return response.Body
}

// whoArrives is the layouts of the node that gets an object.
var whoArrives = map[string]func(t *testing.T) (asker, edge *runningNode, stop func()){
	"one process": func(t *testing.T) (*runningNode, *runningNode, func()) {
		n := start(t, 2)
		n.waitReady(t)
		return n, n, func() { n.stopAndWait(t) }
	},
	"five processes": func(t *testing.T) (*runningNode, *runningNode, func()) {
		s := newSplitNode(t, fiveProcesses)
		running := map[string]*runningNode{}
		for group := range s.groups {
			running[group] = s.start(group)
		}
		for _, one := range running {
			one.waitReady(t)
		}
		return running["gateway"], running["gateway"], func() {
			for _, one := range running {
				one.stop()
			}
			for _, one := range running {
				<-one.ended
			}
		}
	},
}

// A large object comes from two nodes at once. The range that was asked for
// comes first, its first bytes come long before its end, and all of it is
// right. The links together let only half of the object through before.
func TestAnObjectArrivesFromTwoNodesAtOnce(t *testing.T) {
	const mib = 1 << 20
	data := randomBytes(24 * mib)
	for layout, begin := range whoArrives {
		for _, path := range []string{"/fetch/", "/edge/assets/"} {
			t.Run(fmt.Sprintf("%s%s", layout, path), func(t *testing.T) {
				address, nodes, relays := givers(t, data, 6*mib, 6*mib)
				asker, edge, stop := begin(t)
				local := asker.localClient(t)
				meet(t, local, nodes, relays)

				web := edge.localHTTP()
				part := web.open(t, path+address.String(), "20000000-20000099")
				if body, err := io.ReadAll(part); err != nil || !bytes.Equal(body, data[20000000:20000100]) {
					t.Errorf("a range far ahead is wrong: %d bytes, %v", len(body), err)
				}
				_ = part.Close()
				whole := web.open(t, path+address.String(), "")
				defer whole.Close()
				first := make([]byte, 2*mib)
				if _, err := io.ReadFull(whole, first); err != nil || !bytes.Equal(first, data[:2*mib]) {
					t.Errorf("the first bytes are wrong: %v", err)
				}
				testkit.WaitFor(t, "both nodes send", func() bool { return relays[0].count() > 2*mib && relays[1].count() > 2*mib })
				for _, one := range relays {
					one.raise(noLimit)
				}
				rest, err := io.ReadAll(whole)
				if err != nil || !bytes.Equal(rest, data[2*mib:]) {
					t.Errorf("%d bytes after the first, %v", len(rest), err)
				}
				testkit.WaitFor(t, "the object is stored", func() bool {
					_, err := local.Stat(t.Context(), address)
					return err == nil
				})
				stop()
				for _, one := range nodes {
					one.stopAndWait(t)
				}
			})
		}
	}
}

// A node passes on what it has of an object before it has all of it: another one,
// which knows nobody else, reads the front while the rest is held back.
func TestWhatArrivesIsPassedOnToNodes(t *testing.T) {
	const mib = 1 << 20
	data := randomBytes(24 * mib)
	address, nodes, relays := givers(t, data, 12*mib)
	middle := start(t, 2, testFlag("overlay.open", "true"), testFlag("node.advertise", "http://127.0.0.1:1"))
	last := start(t, 2)
	middle.waitReady(t)
	last.waitReady(t)
	meet(t, middle.localClient(t), nodes, relays)
	meet(t, last.localClient(t), []*runningNode{middle}, []*relay{newRelay(t, middle.overlay.Addr().String(), noLimit)})

	first := make([]byte, 4*mib)
	in := middle.localHTTP().open(t, "/fetch/"+address.String(), "")
	defer in.Close()
	if _, err := io.ReadFull(in, first); err != nil || !bytes.Equal(first, data[:4*mib]) {
		t.Fatalf("the first bytes are wrong: %v", err)
	}
	out := last.localHTTP().open(t, "/fetch/"+address.String(), "")
	defer out.Close()
	if _, err := io.ReadFull(out, first); err != nil || !bytes.Equal(first, data[:4*mib]) {
		t.Fatalf("the first bytes are wrong at the last node: %v", err)
	}
	if count := relays[0].count(); count > 12*mib {
		t.Fatalf("%d bytes passed", count)
	}
	relays[0].raise(noLimit)
	for _, body := range []io.Reader{in, out} {
		if rest, err := io.ReadAll(body); err != nil || !bytes.Equal(rest, data[4*mib:]) {
			t.Errorf("%d bytes after the first, %v", len(rest), err)
		}
	}
	if moved := relays[0].count(); moved > 26*mib {
		t.Errorf("%d bytes came from the node that had all of %d", moved, len(data))
	}
	for _, one := range append(nodes, middle, last) {
		one.stopAndWait(t)
	}
}

// A fetch that was cut off goes on after a restart, from another node, when the
// first one is gone. Nothing but what was under way moves twice.
func TestAFetchGoesOnAfterARestart(t *testing.T) {
	const mib = 1 << 20
	data := randomBytes(24 * mib)
	address, nodes, relays := givers(t, data, 16*mib, noLimit)
	folder := t.TempDir()
	persistent := func() *runningNode {
		n := startWith(t, func(o *Options) { o.Persist = folder })
		n.waitReady(t)
		return n
	}
	n := persistent()
	meet(t, n.localClient(t), nodes[:1], relays[:1])
	body := n.localHTTP().open(t, "/fetch/"+address.String(), "")
	if _, err := io.ReadFull(body, make([]byte, 12*mib)); err != nil {
		t.Fatal(err)
	}
	_ = body.Close()
	n.stop()
	<-n.ended
	before := relays[0].count()
	relays[0].sever()

	n = persistent()
	meet(t, n.localClient(t), nodes[1:], relays[1:])
	body = n.localHTTP().open(t, "/fetch/"+address.String(), "")
	if got, err := io.ReadAll(body); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	_ = body.Close()
	if after := relays[1].count(); before < 12*mib || after > 14*mib {
		t.Errorf("%d bytes moved before the restart and %d after it, of %d", before, after, len(data))
	}
	n.stopAndWait(t)
	for _, one := range nodes {
		one.stopAndWait(t)
	}
}

// While an object arrives the node says how far it is, and how fast it comes.
func TestHowFarAFetchIs(t *testing.T) {
	const mib = 1 << 20
	data := randomBytes(24 * mib)
	address, nodes, relays := givers(t, data, 12*mib)
	n := start(t, 2)
	n.waitReady(t)
	c := n.localClient(t)
	meet(t, c, nodes, relays)
	if all, err := c.Fetches(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("nothing is fetched, but %v, %v", all, err)
	}
	body := n.localHTTP().open(t, "/fetch/"+address.String(), "")
	defer body.Close()
	_, err := io.ReadFull(body, make([]byte, 4*mib))
	testkit.Must(t, err)
	all, err := c.Fetches(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	one := all[0]
	if one.Address != address || one.Size != int64(len(data)) || one.Arrived < 4*mib || one.Arrived > 12*mib || one.Sources < 1 || one.Rate <= 0 || one.Left < 0 {
		t.Errorf("%+v", one)
	}
	if got := n.gatewayHTTP().do(t, http.MethodGet, "/fetches", nil); got.status != http.StatusUnauthorized {
		t.Errorf("a stranger: %d %s", got.status, got.body)
	}
	relays[0].raise(noLimit)
	_, err = io.Copy(io.Discard, body)
	testkit.Must(t, err)
	testkit.WaitFor(t, "the fetch is over", func() bool {
		all, err := c.Fetches(t.Context())
		return err == nil && len(all) == 0
	})
	for _, one := range append(nodes, n) {
		one.stopAndWait(t)
	}
}
