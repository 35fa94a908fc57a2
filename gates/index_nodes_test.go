//go:build gates

package gates

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/internal/index/record"
	"micronode/internal/oap"
)

// awaitNoError retries until ask succeeds, for half a minute at most:
// announcements between nodes take time, and negative answers are cached for
// two seconds.
func awaitNoError(t *testing.T, p *process, what string, ask func() error) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v\n%s", what, err, p.stderr)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// put stores a text.
func (p *process) put(text string) b3.Address {
	p.t.Helper()
	object, err := p.local().Put(p.t.Context(), strings.NewReader(text), client.PutOptions{Size: int64(len(text))})
	if err != nil {
		p.t.Fatal(err)
	}
	return object.Address
}

// expectObject reads an object that the node must have by now.
func (p *process) expectObject(address b3.Address, text string) {
	p.t.Helper()
	answer, body, err := fetch(p.http + "/o/" + address.String())
	if err != nil || answer.StatusCode != http.StatusOK || string(body) != text {
		p.t.Errorf("%s: %v %v %q, want %q", address, answer, err, body, text)
	}
}

// Two nodes that have a session: what one has and names, the other finds,
// fetches and resolves. When the first is killed, the second reports it, in
// time and with a code, and what it has fetched it still has.
func TestIndexTwoNodes(t *testing.T) {
	a, b := start(t, nil, unlimited...), start(t, nil, unlimited...)
	addrA, idA := a.overlayEndpoint()
	_, idB := b.overlayEndpoint()
	a.addPeer(must(oap.ParsePeerID(idB)), unreachableAddr) // of two sessions, one would be closed
	b.addPeer(must(oap.ParsePeerID(idA)), addrA)
	a.awaitSessions(1)
	b.awaitSessions(1)
	texts := []string{"the first", "the second", "the third", "not fetched"}
	var objects []b3.Address
	for _, text := range texts {
		objects = append(objects, a.put(text))
	}
	if _, err := a.local().SetName(t.Context(), "docs", objects[0]); err != nil {
		t.Fatal(err)
	}

	name := "name:docs@" + idA
	resolved, err := b.local().Resolve(t.Context(), name, client.ResolveOptions{})
	if err != nil || resolved.Manifest != objects[0] || resolved.Source != "peer" || resolved.Kind != client.KindName {
		t.Errorf("%s: %+v, %v", name, resolved, err)
	}
	for i, address := range objects[:3] {
		f := b.lookupProviders(address)
		if f.status != http.StatusOK || i > 0 && f.Source != "peer" || len(f.Providers.Providers) != 1 || f.Providers.Providers[0].ID != idA {
			t.Errorf("who has %s: %d %s %+v", address, f.status, f.code, f.Providers)
		}
		got, err := b.local().FetchAnywhere(t.Context(), address)
		if err != nil || !got.Created {
			t.Errorf("fetching: %+v, %v", got, err)
		}
		b.expectObject(address, texts[i])
	}
	if got, err := b.local().Resolve(t.Context(), objects[0].String(), client.ResolveOptions{}); err != nil || got.Source != "local" {
		t.Errorf("what was fetched: %+v, %v", got, err)
	}
	b.lookupProviders(objects[3]) // it knows the provider, and then that one is killed

	a.kill()
	a.awaitEnd()
	from := time.Now()
	_, err = b.local().FetchAnywhere(t.Context(), objects[3])
	if code := errorCode(err); !slices.Contains([]string{"NotFound", "UpstreamFailed", "NoRoute", "Timeout", "BreakerOpen"}, code) {
		t.Errorf("fetching from one that was killed: %v", err)
	}
	t.Logf("fetching from one that was killed: %v, after %s", err, time.Since(from).Round(time.Millisecond))
	f := b.lookupProviders(testAddress("after the kill", 0))
	if f.status == http.StatusOK && len(f.Providers.Providers) > 0 {
		t.Errorf("a node that was killed has something: %+v", f.Providers)
	}
	t.Logf("a new question: %d %s after %s", f.status, f.code, f.took.Round(time.Millisecond))
	b.expectObject(objects[0], texts[0])
	b.stop(syscall.SIGTERM)
}

// A node that is killed as soon as it has acknowledged a name has the name when
// it is restarted: the last value that it acknowledged, or one that was pending
// and not acknowledged.
func TestIndexNamesKilled(t *testing.T) {
	kills := 10
	if isLong() {
		kills = 100
	}
	folder := t.TempDir()
	acknowledged := map[string]client.NameRecord{}
	for round := range kills {
		p := startWith(t, nil, []string{"--persist", folder}, unlimited...)
		p.expectNames(acknowledged)
		p.setNamesUntilKilled(round, acknowledged)
	}
	p := startWith(t, nil, []string{"--persist", folder}, unlimited...)
	p.expectNames(acknowledged)
	t.Logf("%d names kept over %d kills", len(acknowledged), kills)
	report(t, "killed while names are set", "no acknowledged name lost", fmt.Sprintf("%d kept over %d kills", len(acknowledged), kills))
	p.stop(syscall.SIGTERM)
}

// expectNames resolves all names that were acknowledged. A newer value is one
// that was not acknowledged before the kill; an older one is a loss.
func (p *process) expectNames(acknowledged map[string]client.NameRecord) {
	p.t.Helper()
	names, err := p.local().Names(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	kept := map[string]client.NameRecord{}
	for _, one := range names {
		kept[one.Name] = one
	}
	for name, want := range acknowledged {
		got, there := kept[name]
		if !there || got.Seq < want.Seq || got.Seq == want.Seq && got.Manifest != want.Manifest {
			p.t.Errorf("%s was acknowledged as %s with %d; now it is %s with %d", name, want.Manifest, want.Seq, got.Manifest, got.Seq)
		}
	}
	for name, want := range acknowledged { // one is enough to see that they resolve
		got, err := p.local().Resolve(p.t.Context(), "name:"+name, client.ResolveOptions{})
		if err != nil || got.Source != "local" || got.Manifest != kept[name].Manifest {
			p.t.Errorf("name:%s is %+v, %v, want %+v", name, got, err, want)
		}
		break
	}
}

// setNamesUntilKilled sets names from several callers, new ones and the same
// ones again, and kills the node right after one of them was acknowledged.
func (p *process) setNamesUntilKilled(round int, acknowledged map[string]client.NameRecord) {
	p.t.Helper()
	token, web := p.token("name:set"), clientFrom(p.t, "127.0.0.1", 8)
	enough, acks := 1+mathrand.IntN(40), 0
	var mu sync.Mutex
	var group sync.WaitGroup
	for caller := range 8 {
		group.Go(func() {
			for i := 0; ; i++ {
				name := fmt.Sprintf("site-%d-%d", caller, []int{i, round*1000 + i}[i%2])
				record, err := setName(p.t.Context(), web, p.http, token, name, testAddress(name, round*1000+i))
				if err != nil {
					return // it was killed
				}
				mu.Lock()
				if known := acknowledged[name]; record.Seq <= known.Seq {
					p.t.Errorf("%s was acknowledged with %d, and later with %d", name, known.Seq, record.Seq)
				}
				acknowledged[name] = record
				if acks++; acks == enough {
					p.kill()
				}
				mu.Unlock()
			}
		})
	}
	p.awaitEnd()
	group.Wait()
}

// setName sends PUT /names/{name} once. Only an answer that came counts.
func setName(ctx context.Context, web *http.Client, base, token, name string, manifest b3.Address) (record client.NameRecord, err error) {
	body, err := json.Marshal(client.NameRequest{Manifest: manifest})
	if err != nil {
		return record, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, base+"/names/"+name, bytes.NewReader(body))
	if err != nil {
		return record, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	answer, err := web.Do(r)
	if err != nil {
		return record, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s", answer.Status, text)
	}
	if err != nil {
		return record, err
	}
	return record, json.Unmarshal(text, &record)
}

// dhtNode is a node that takes part in a DHT.
type dhtNode struct {
	*process
	addr string // the bootstrap address for others
}

// startDHTNode starts a node with a key and a configuration file of its own,
// and no contacts but some bootstrap peers of the DHT.
func startDHTNode(t *testing.T, bootstrapPeers ...string) *dhtNode {
	t.Helper()
	folder := t.TempDir()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(folder, "key")
	if err := os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	at := freePort(t)
	config := filepath.Join(folder, "micronode.toml")
	bootstrap, _ := json.Marshal(append([]string{}, bootstrapPeers...))
	text := fmt.Sprintf("[index.dht]\nenabled = true\naddr = %q\nbootstrap = %s\n", at, bootstrap)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startWith(t, nil, []string{"--config", config, "--identity", "file:" + key}, unlimited...)
	_, port, _ := net.SplitHostPort(at)
	return &dhtNode{p, "/ip4/127.0.0.1/tcp/" + port + "/p2p/" + record.Libp2pID(public)}
}

// freePort is an address without a listener. It is below the ephemeral ports:
// one of those could be assigned to the next connection that any process opens,
// before the node listens on it.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 20_000+mathrand.IntN(12_000))
		if listener, err := net.Listen("tcp4", address); err == nil {
			_ = listener.Close()
			return address
		}
	}
	t.Fatal("a hundred ports are taken")
	return ""
}

// Three nodes know each other by the DHT alone. What the first has, the third
// finds there, fetches over HTTP, and resolves by the name that the first has
// signed. A node that is alone in its DHT reports that.
func TestIndexDHT(t *testing.T) {
	first := startDHTNode(t)
	if status, body := first.ready(); status != http.StatusServiceUnavailable || !strings.Contains(body, `"ready":true`) || !strings.Contains(body, "routing table of the DHT is empty") {
		t.Errorf("alone: %d %s", status, body)
	}
	if answer, body, err := fetch(first.admin + "/readyz?for=read"); err != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("alone, for reads: %v %v %s", answer, err, body)
	}
	second := startDHTNode(t, first.addr)
	third := startDHTNode(t, second.addr)
	for _, one := range []*dhtNode{first, second, third} {
		awaitNoError(t, one.process, "peers of the DHT", func() error {
			if n := one.metric("index_dht_peers", ""); n < 2 {
				return fmt.Errorf("%v peers", n)
			}
			return nil
		})
	}
	awaitNoError(t, first.process, "readiness", func() error {
		if status, body := first.ready(); status != http.StatusOK || strings.Contains(body, "routing table") {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})

	const text = "only the first has this"
	address := first.put(text)
	_, id := first.overlayEndpoint()
	if _, err := first.local().SetName(t.Context(), "docs", address); err != nil {
		t.Fatal(err)
	}
	awaitNoError(t, third.process, "the provider", func() error {
		f := third.lookupProviders(address)
		if f.status != http.StatusOK || f.Source != "dht" && f.Source != "cache" || len(f.Providers.Providers) != 1 || f.Providers.Providers[0].ID != id {
			return fmt.Errorf("%d %s %+v", f.status, f.code, f.Providers)
		}
		return nil
	})
	awaitNoError(t, third.process, "the name", func() error {
		got, err := third.local().Resolve(t.Context(), "name:docs@"+id, client.ResolveOptions{})
		if err == nil && (got.Manifest != address || got.Source != "dht") {
			err = fmt.Errorf("%+v", got)
		}
		return err
	})
	if peers, err := third.local().Peers(t.Context()); err != nil || len(peers) != 0 {
		t.Errorf("the third has peers of the overlay: %+v, %v", peers, err)
	}
	if got, err := third.local().FetchAnywhere(t.Context(), address); err != nil || !got.Created {
		t.Errorf("fetching: %+v, %v\n%s", got, err, third.stderr)
	}
	third.expectObject(address, text)
	t.Logf("announced: %v, and %v failed; looked up: %v", first.metric("index_announcements_total", `"ok"`), first.metric("index_announcements_total", `"failed"`), third.metric("index_dht_lookup_ms_count", ""))

	// One of the three is killed. A look-up without a provider is still
	// answered.
	second.kill()
	second.awaitEnd()
	if f := third.lookupProviders(testAddress("after the kill", 0)); f.status != http.StatusOK && f.code == "" {
		t.Errorf("%d %s", f.status, f.code)
	}
	first.stop(syscall.SIGTERM)
	third.stop(syscall.SIGTERM)
}
