package node

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/index"
	"micronode/internal/overlay"
	"micronode/internal/store"
)

// put stores a text on a node, as a client would have it stored.
func (s *started) put(t *testing.T, text string) b3.Address {
	t.Helper()
	info, _, err := (announced{s.store, s.stored, s.removed}).Put(t.Context(), strings.NewReader(text), store.PutOptions{Size: int64(len(text))})
	if err != nil {
		t.Fatal(err)
	}
	return info.Address
}

// found resolves an ID on a node, however often that takes until others know
// each other.
func (s *started) found(t *testing.T, id string) index.Resolution {
	t.Helper()
	parsed, err := index.ParseID(id)
	if err != nil {
		t.Fatal(err)
	}
	for {
		found, err := s.index.Resolve(t.Context(), parsed, index.Options{})
		if err == nil && len(found.Providers) > 0 {
			return found
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("%s was not found: %v", id, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (s *started) end(t *testing.T) {
	t.Helper()
	s.stop()
	if report := <-s.ended; len(report.Aborted) > 0 {
		t.Errorf("aborted: %v", report.Aborted)
	}
}

// Two nodes that know each other find and fetch what the other one has, by
// address and by name.
func TestTwoNodesFindEachOthersObjects(t *testing.T) {
	a := start(t, 2)
	b := start(t, 2, config.Flag{Key: "overlay.peers", Value: a.Info().Overlay, Name: "test"})
	if _, err := a.overlay.AddPeer(overlay.Contact{ID: b.overlay.ID(), Addrs: []string{b.overlay.Addr().String()}}); err != nil {
		t.Fatal(err)
	}
	address := a.put(t, "hello from a")
	if _, err := a.index.SetName(t.Context(), "docs", address); err != nil {
		t.Fatal(err)
	}
	found := b.found(t, "name:docs@"+a.overlay.ID().String())
	if found.Manifest != address || found.Source != index.FromPeer || found.Providers[0].Provider.ID != a.overlay.ID().String() {
		t.Errorf("%+v", found)
	}
	if info, created, err := b.index.Fetch(t.Context(), address); err != nil || !created || info.Size != 12 {
		t.Error(info, created, err)
	}
	if answer := b.answerPeer(t.Context(), overlay.Question{Obj: address.String(), Most: 8}); len(answer.Providers) != 1 || len(answer.Providers[0].HTTP) != 1 {
		t.Errorf("%+v", answer)
	}
	if answer := b.answerPeer(t.Context(), overlay.Question{Obj: "no such thing\x00", Most: 8}); len(answer.Providers) != 0 {
		t.Errorf("%+v", answer)
	}
	if _, err := heard(overlay.Found{Record: []byte("garbage")}, time.Now()); fault.KindOf(err) != fault.Malformed {
		t.Error(err)
	}
	b.end(t)
	a.end(t)
}

// Two nodes that have never met find each other's objects in the DHT, and the
// banner says how to join it.
func TestTwoNodesMeetInTheDHT(t *testing.T) {
	dht := func(more ...config.Flag) []config.Flag {
		return append(more, config.Flag{Key: "index.dht.addr", Value: "127.0.0.1:0", Name: "test"})
	}
	a := start(t, 2, dht(config.Flag{Key: "index.dht.enabled", Value: "true", Name: "test"})...)
	where := a.Info().DHT
	if len(where) == 0 || !strings.Contains(where[0], "/p2p/12D3Koo") || !slices.Equal(a.Status().Listen.DHT, where) {
		t.Fatalf("%v", where)
	}
	b := start(t, 2, dht(config.Flag{Key: "index.dht.bootstrap", Value: where[0], Name: "test"})...)
	address := a.put(t, "hello from a")
	b.found(t, address.String()) // although nobody was there when it was put
	if _, created, err := b.index.Fetch(t.Context(), address); err != nil || !created {
		t.Error(created, err)
	}
	b.end(t)
	a.end(t)
	_, err := New(t.Context(), forTest(t, config.Flag{Key: "index.dht.bootstrap", Value: "/ip4/127.0.0.1/udp/1", Name: "test"}))
	if err == nil || !strings.Contains(err.Error(), "index.dht.bootstrap") {
		t.Error(err)
	}
}

// Names are kept in the folder, each in a file that a restart reads, and go
// when they are removed.
func TestNamesAreKept(t *testing.T) {
	folder := t.TempDir()
	first := persist(t, folder)
	if _, err := first.index.SetName(t.Context(), "docs", b3.Of([]byte("one"))); err != nil {
		t.Fatal(err)
	}
	if _, err := first.index.SetName(t.Context(), "gone", b3.Of([]byte("two"))); err != nil {
		t.Fatal(err)
	}
	if err := first.index.DeleteName(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	first.end(t)
	second := persist(t, folder)
	for name, kind := range map[string]fault.Kind{"name:docs": fault.NotFound, "name:gone": fault.NotFound} {
		id, _ := index.ParseID(name)
		found, err := second.index.Resolve(t.Context(), id, index.Options{})
		if name == "name:docs" {
			if err != nil || found.Manifest != b3.Of([]byte("one")) {
				t.Error(found, err)
			}
			continue
		}
		if fault.KindOf(err) != kind {
			t.Error(err)
		}
	}
	second.end(t)
	names, err := filepath.Glob(filepath.Join(folder, namesFolder, "*"))
	if err != nil || len(names) != 1 {
		t.Errorf("%v %v", names, err)
	}
}

// Once a node has seen what another means by a name, it does not go back: not
// when that one comes back from an old copy of its folder, and not when it was
// restarted itself. What is set then counts.
func TestNamesDoNotGoBack(t *testing.T) {
	now, before, mine := filepath.Join(t.TempDir(), "now"), filepath.Join(t.TempDir(), "before"), t.TempDir()
	name := func(s *started, text string) b3.Address {
		address := s.put(t, text)
		if _, err := s.index.SetName(t.Context(), "firmware", address); err != nil {
			t.Fatal(err)
		}
		return address
	}
	meet := func(a, b *started) (asked string) {
		for _, pair := range [][2]*started{{a, b}, {b, a}} {
			if _, err := pair[0].overlay.AddPeer(overlay.Contact{ID: pair[1].overlay.ID(), Addrs: []string{pair[1].overlay.Addr().String()}}); err != nil {
				t.Fatal(err)
			}
		}
		return "name:firmware@" + a.overlay.ID().String()
	}

	a := persist(t, now)
	name(a, "one")
	a.end(t)
	if err := os.CopyFS(before, os.DirFS(now)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(before, identityFile), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(before, rootFile), 0o600); err != nil {
		t.Fatal(err)
	}
	a, b := persist(t, now), persist(t, mine)
	two := name(a, "two")
	if found := b.found(t, meet(a, b)); found.Manifest != two {
		t.Errorf("%+v", found)
	}
	a.end(t)
	b.end(t)

	a, b = persist(t, before), persist(t, mine)
	a.put(t, "two") // so that somebody has it
	asked := meet(a, b)
	if found := b.found(t, asked); found.Manifest != two {
		t.Errorf("it went back: %+v", found)
	}
	three := name(a, "three")
	for limit := time.Now().Add(20 * time.Second); b.found(t, asked).Manifest != three; {
		if time.Now().After(limit) {
			t.Fatal("what is set anew is not seen")
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.end(t)
	a.end(t)
}

// A folder of names that cannot be used is told, with what to do.
func TestAFolderOfNamesThatCannotBeUsed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node")
	folder := mustFolder(t, path)
	kept := nameFolder{folder}
	if err := kept.Save("x", []byte("y")); fault.KindOf(err) == 0 { // it is not there yet
		t.Error("saved into nothing")
	}
	if err := kept.Remove("x"); fault.NextOf(err) == "" {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(path, namesFolder), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := kept.Load(); fault.KindOf(err) != fault.Malformed {
		t.Error(err)
	}
	if err := folder.Close(); err != nil {
		t.Error(err)
	}
}

// What can be advertised is somewhere that can be reached.
func TestPlaces(t *testing.T) {
	for text, good := range map[string]bool{
		"192.0.2.1:9500": true, "node.example:9500": true, "https://node.example": true, "http://192.0.2.1:8080": true,
		"": false, "node.example": false, ":9500": false, "ftp://node.example": false, "https://": false, "https://me@node.example": false,
		"https://node.example/path": false, "https://node.example?x": false, "https://%zz": false,
	} {
		section := Section{Identity: "ephemeral", Drain: time.Second, Workers: config.Auto[int]{Auto: true}, Advertise: []string{text}}
		if err := section.Validate(); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// What a node tells of where it is: what it was told to, or where it listens.
func TestWhereANodeIs(t *testing.T) {
	n := start(t, 2, config.Flag{Key: "node.advertise", Value: "node.example:9500,https://node.example", Name: "test"})
	at := n.whereabouts()
	if !slices.Equal(at.Overlay, []string{"node.example:9500"}) || !slices.Equal(at.HTTP, []string{"https://node.example"}) {
		t.Errorf("%+v", at)
	}
	n.end(t)
	if at := (&Node{}).whereabouts(); at.ID != "" {
		t.Errorf("%+v", at)
	}
	for _, one := range dialable((&net.TCPAddr{IP: net.IPv4zero, Port: 9500}).String()) {
		if host, port, err := net.SplitHostPort(one); err != nil || port != "9500" || net.ParseIP(host).IsLoopback() {
			t.Error(one)
		}
	}
	if all := dialable((&net.UnixAddr{Name: "x"}).String()); all != nil {
		t.Errorf("%v", all)
	}
}

// Two parts in other processes that say where they listen at the same moment are
// both heard.
func TestWhereANodeOfSeveralProcessesIs(t *testing.T) {
	identity, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	overlay, gateway := &remote{name: "overlay"}, &remote{name: gatewayPart}
	n := &Node{identity: identity, remotes: []*remote{overlay, gateway}}
	for range 1000 {
		for _, r := range n.remotes {
			r.said.Store(nil)
		}
		n.locate(Config{})
		var both sync.WaitGroup
		for r, said := range map[*remote]presence{overlay: {Overlay: "192.0.2.1:9500"}, gateway: {HTTP: "192.0.2.1:8080", TLS: true}} {
			both.Go(func() {
				r.said.Store(&said)
				n.locate(Config{})
			})
		}
		both.Wait()
		at := n.whereabouts()
		if !slices.Equal(at.Overlay, []string{"192.0.2.1:9500"}) || !slices.Equal(at.HTTP, []string{"https://192.0.2.1:8080"}) {
			t.Fatalf("%+v", at)
		}
	}
}
