package peers

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"micronode/b3"
	"micronode/bench/testbed"
	"micronode/client"
)

// How many nodes a DHT has, how many of them stay and provide the objects, and
// how many of the others are killed each turn.
const (
	DHTNodes     = 12
	DHTLeaving   = 4
	dhtProviders = 4
	dhtObjects   = 16 // that are looked for in a turn
	dhtPeers     = 6  // that a node must have found before it is asked
)

// DHT is a set of our nodes that know each other by the DHT alone.
type DHT struct {
	g            *testbed.Testbed
	nodes        []*dhtNode // the first are the providers
	web          *http.Client
	nodeSerial   int // nodes so far
	objectSerial int // objects so far
}

// dhtNode is one of them.
type dhtNode struct {
	node      micronode
	client    *client.Client
	http      string
	admin     string
	multiaddr string // a multiaddr for bootstrapping others
}

// StartDHT starts them, each with one or two others for bootstrapping.
func StartDHT(ctx context.Context, g *testbed.Testbed) (*DHT, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: 8}
	g.OnClose(transport.CloseIdleConnections)
	d := &DHT{g: g, web: &http.Client{Transport: transport, Timeout: 30 * time.Second}}
	return d, d.fill(ctx)
}

// fill starts nodes until there are enough, and waits until they have found
// each other.
func (d *DHT) fill(ctx context.Context) error {
	for len(d.nodes) < DHTNodes {
		if err := d.startNode(ctx); err != nil {
			return err
		}
	}
	for _, one := range d.nodes {
		if err := await(ctx, func() (bool, error) {
			peers, err := d.metric(ctx, one, "index_dht_peers", "")
			return peers >= dhtPeers, err
		}); err != nil {
			return fmt.Errorf("a node of the DHT has not found the others: %w", err)
		}
	}
	return nil
}

// await polls until holds returns true.
func await(ctx context.Context, holds func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		done, err := holds()
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// startNode starts one node.
func (d *DHT) startNode(ctx context.Context) error {
	d.nodeSerial++
	folder, err := d.g.Folder("dht")
	if err != nil {
		return err
	}
	private := ed25519.NewKeyFromSeed(append(make([]byte, ed25519.SeedSize-2), byte(d.nodeSerial), byte(d.nodeSerial>>8)))
	key, err := writeKey(folder, private)
	if err != nil {
		return err
	}
	at, err := freePort()
	if err != nil {
		return err
	}
	var bootstrap []string
	for _, i := range rand.Perm(len(d.nodes))[:min(2, len(d.nodes))] {
		bootstrap = append(bootstrap, d.nodes[i].multiaddr)
	}
	environment := append([]string{"MICRO_INDEX__DHT__ENABLED=true", "MICRO_INDEX__DHT__ADDR=" + at, "MICRO_INDEX__DHT__BOOTSTRAP=" + strings.Join(bootstrap, ",")}, raisedLimits...)
	one := &dhtNode{}
	if one.node, err = launchMicronode(ctx, d.g, environment, "--identity", "file:"+key, "--overlay", "127.0.0.1:0"); err != nil {
		return err
	}
	if err := one.node.awaitReadable(ctx); err != nil {
		return err
	}
	if one.client, err = client.New(client.Options{Socket: one.node.socket}); err != nil {
		return err
	}
	d.g.OnClose(one.client.Close)
	status, err := one.client.Status(ctx)
	if err != nil {
		return err
	}
	_, port, _ := strings.Cut(at, ":")
	one.http, one.admin = "http://"+status.Listen.HTTP, "http://"+status.Listen.Admin
	one.multiaddr = "/ip4/127.0.0.1/tcp/" + port + "/p2p/" + libp2pID(private.Public().(ed25519.PublicKey))
	d.nodes = append(d.nodes, one)
	return nil
}

// awaitReadable waits until a node serves reads. The first one of a DHT is
// alone in it, and reports that as degraded.
func (m micronode) awaitReadable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	url, err := m.process.Await(ctx, bannerURL)
	if err != nil {
		return err
	}
	return awaitOK(ctx, url[0]+"/readyz?for=read")
}

func writeKey(folder string, key ed25519.PrivateKey) (path string, err error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", err
	}
	path = filepath.Join(folder, "key")
	return path, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
}

// libp2pID returns the peer ID of libp2p for a key: base58 of the key itself,
// in an identity multihash.
func libp2pID(public ed25519.PublicKey) string {
	const digits = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
	raw := append([]byte{0x00, 0x24, 0x08, 0x01, 0x12, 0x20}, public...)
	var text []byte
	base, rest := big.NewInt(int64(len(digits))), new(big.Int)
	for number := new(big.Int).SetBytes(raw); number.Sign() > 0; {
		number.DivMod(number, base, rest)
		text = append(text, digits[rest.Int64()])
	}
	text = append(text, digits[0]) // for the zero at the front
	slices.Reverse(text)
	return string(text)
}

// LookupStats is the result of some look-ups.
type LookupStats struct {
	Asked, Found int
	P50, P99     time.Duration
	Lookups      float64 // that needed other nodes
	Hedged       float64 // of those
}

// Turn has the providers announce new objects, kills some of the others, has all
// that are left look for the objects at once, and then fills up again.
func (d *DHT) Turn(ctx context.Context) (s LookupStats, err error) {
	keys, err := d.announce(ctx)
	if err != nil {
		return s, err
	}
	for range DHTLeaving {
		i := dhtProviders + rand.IntN(len(d.nodes)-dhtProviders)
		if err := d.nodes[i].node.process.Stop(); err != nil {
			return s, err
		}
		d.nodes = slices.Delete(d.nodes, i, i+1)
	}
	lookedUp, hedged, err := d.totals(ctx)
	if err != nil {
		return s, err
	}
	if s, err = d.lookupAll(ctx, keys); err != nil {
		return s, err
	}
	s.Lookups, s.Hedged, err = d.totals(ctx)
	s.Lookups, s.Hedged = max(s.Lookups-lookedUp, 1), s.Hedged-hedged
	if err != nil {
		return s, err
	}
	return s, d.fill(ctx)
}

// announce puts new objects on the providers and waits until all are announced.
func (d *DHT) announce(ctx context.Context) (keys []b3.Address, err error) {
	before := make([]float64, dhtProviders)
	for i, one := range d.nodes[:dhtProviders] {
		if before[i], err = d.metric(ctx, one, "index_announcements_total", `"ok"`); err != nil {
			return nil, err
		}
	}
	for i := range dhtObjects {
		d.objectSerial++
		text := fmt.Sprint("object ", d.objectSerial)
		stored, err := d.nodes[i%dhtProviders].client.Put(ctx, strings.NewReader(text), client.PutOptions{Size: int64(len(text))})
		if err != nil {
			return nil, err
		}
		keys = append(keys, stored.Address)
	}
	for i, one := range d.nodes[:dhtProviders] {
		if err := await(ctx, func() (bool, error) {
			now, err := d.metric(ctx, one, "index_announcements_total", `"ok"`)
			return now >= before[i]+dhtObjects/dhtProviders, err
		}); err != nil {
			return nil, fmt.Errorf("a node has not announced its objects: %w", err)
		}
	}
	return keys, nil
}

// lookupAll has every node look for every object that it does not have, four
// nodes at a time. An object that is not found in time is counted, and no
// error.
func (d *DHT) lookupAll(ctx context.Context, keys []b3.Address) (s LookupStats, err error) {
	var mu sync.Mutex
	var took []time.Duration
	var group sync.WaitGroup
	room := make(chan struct{}, 4)
	for i, one := range d.nodes {
		group.Go(func() {
			for n, key := range keys {
				if i < dhtProviders && n%dhtProviders == i {
					continue
				}
				room <- struct{}{}
				begin := time.Now()
				found, failed := d.lookup(ctx, one, key)
				elapsed := time.Since(begin)
				<-room
				mu.Lock()
				took = append(took, elapsed)
				if found {
					s.Found++
				}
				if failed != nil {
					err = failed
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	slices.Sort(took)
	s.Asked = len(took)
	s.P50, s.P99 = took[len(took)/2], took[len(took)*99/100]
	return s, err
}

// lookup asks one node for the providers of an object.
func (d *DHT) lookup(ctx context.Context, one *dhtNode, key b3.Address) (found bool, err error) {
	status, body, err := d.get(ctx, one.http+"/providers/"+key.String())
	if err != nil || status != http.StatusOK {
		return false, err
	}
	var answer client.Providers
	err = json.Unmarshal(body, &answer)
	return len(answer.Providers) > 0, err
}

// totals returns how many look-ups all nodes have started, and how many were
// hedged.
func (d *DHT) totals(ctx context.Context) (lookedUp, hedged float64, err error) {
	for _, one := range d.nodes {
		lookups, failed := d.metric(ctx, one, "index_dht_lookup_ms_count", "")
		if failed != nil {
			return 0, 0, failed
		}
		hedges, failed := d.metric(ctx, one, "hedge_total", "")
		if failed != nil {
			return 0, 0, failed
		}
		lookedUp, hedged = lookedUp+lookups, hedged+hedges
	}
	return lookedUp, hedged, nil
}

// metric is the sum of the series of a metric whose labels contain a text.
func (d *DHT) metric(ctx context.Context, one *dhtNode, name, label string) (sum float64, err error) {
	_, body, err := d.get(ctx, one.admin+"/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(body)) {
		if (strings.HasPrefix(line, name+"{") || strings.HasPrefix(line, name+" ")) && strings.Contains(line, label) {
			value, _ := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " "):]), 64)
			sum += value
		}
	}
	return sum, nil
}

func (d *DHT) get(ctx context.Context, url string) (status int, body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	response, err := d.web.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}
