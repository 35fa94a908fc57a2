package node

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/index"
	"micronode/internal/overlay"
	"micronode/internal/store"
	"micronode/internal/testkit"
)

// put stores a text on a node, as a client would.
func (n *runningNode) put(t *testing.T, text string) b3.Address {
	t.Helper()
	info, _, err := (notifyingStore{n.store, n.memory, &n.storeFull, n.onStored, n.onRemoved}).Put(t.Context(), strings.NewReader(text), store.PutOptions{Size: int64(len(text))})
	if err != nil {
		t.Fatal(err)
	}
	return info.Address
}

// waitResolved resolves an ID on a node, and retries until the nodes know each
// other.
func (n *runningNode) waitResolved(t *testing.T, id string) index.Resolution {
	t.Helper()
	parsed, err := index.ParseID(id)
	if err != nil {
		t.Fatal(err)
	}
	return poll(t, func() (index.Resolution, error) { return n.index.Resolve(t.Context(), parsed, index.Options{}) },
		func(found index.Resolution) bool { return len(found.Providers) > 0 })
}

func (n *runningNode) stopAndWait(t *testing.T) {
	t.Helper()
	n.stop()
	if report := <-n.ended; len(report.Aborted) > 0 {
		t.Errorf("aborted: %v", report.Aborted)
	}
}

// Two connected nodes find and fetch each other's objects, by address and by
// name.
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
	found := b.waitResolved(t, "name:docs@"+a.overlay.ID().String())
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
	if _, err := decodeFound(overlay.Found{Record: []byte("garbage")}, time.Now()); fault.KindOf(err) != fault.Malformed {
		t.Error(err)
	}
	b.stopAndWait(t)
	a.stopAndWait(t)
}

// Names are kept in the folder, each in a file that a restart reads, and are
// deleted when they are removed.
func TestNamesAreKept(t *testing.T) {
	folder := t.TempDir()
	first := startOnFolder(t, folder)
	if _, err := first.index.SetName(t.Context(), "docs", b3.Of([]byte("one"))); err != nil {
		t.Fatal(err)
	}
	if _, err := first.index.SetName(t.Context(), "gone", b3.Of([]byte("two"))); err != nil {
		t.Fatal(err)
	}
	if err := first.index.DeleteName(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	first.stopAndWait(t)
	second := startOnFolder(t, folder)
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
	second.stopAndWait(t)
	names, err := filepath.Glob(filepath.Join(folder, namesFolder, "*"))
	if err != nil || len(names) != 1 {
		t.Errorf("%v %v", names, err)
	}
}

// Once a node has seen a record of another node's name, it never accepts an
// older one: not when the other node returns with an old copy of its folder,
// and not after a restart of its own. A newer record counts.
func TestNamesDoNotGoBack(t *testing.T) {
	now, before, mine := filepath.Join(t.TempDir(), "now"), filepath.Join(t.TempDir(), "before"), t.TempDir()
	name := func(s *runningNode, text string) b3.Address {
		address := s.put(t, text)
		if _, err := s.index.SetName(t.Context(), "firmware", address); err != nil {
			t.Fatal(err)
		}
		return address
	}
	meet := func(a, b *runningNode) (asked string) {
		for _, pair := range [][2]*runningNode{{a, b}, {b, a}} {
			if _, err := pair[0].overlay.AddPeer(overlay.Contact{ID: pair[1].overlay.ID(), Addrs: []string{pair[1].overlay.Addr().String()}}); err != nil {
				t.Fatal(err)
			}
		}
		return "name:firmware@" + a.overlay.ID().String()
	}

	a := startOnFolder(t, now)
	name(a, "one")
	a.stopAndWait(t)
	if err := os.CopyFS(before, os.DirFS(now)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(before, identityFile), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(before, rootFile), 0o600); err != nil {
		t.Fatal(err)
	}
	a, b := startOnFolder(t, now), startOnFolder(t, mine)
	two := name(a, "two")
	if found := b.waitResolved(t, meet(a, b)); found.Manifest != two {
		t.Errorf("%+v", found)
	}
	a.stopAndWait(t)
	b.stopAndWait(t)

	a, b = startOnFolder(t, before), startOnFolder(t, mine)
	a.put(t, "two") // so that there is a provider
	asked := meet(a, b)
	if found := b.waitResolved(t, asked); found.Manifest != two {
		t.Errorf("it went back: %+v", found)
	}
	three := name(a, "three")
	testkit.WaitFor(t, "what is set anew is seen", func() bool { return b.waitResolved(t, asked).Manifest == three })
	b.stopAndWait(t)
	a.stopAndWait(t)
}

// A folder of names that cannot be used is reported, with what to do.
func TestAFolderOfNamesThatCannotBeUsed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node")
	folder := mustFolder(t, path)
	kept := nameStore{folder}
	if err := kept.Save("x", []byte("y")); fault.KindOf(err) == 0 { // it does not exist yet
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

// An advertised address must be reachable.
func TestAdvertiseAddrs(t *testing.T) {
	for text, good := range map[string]bool{
		"192.0.2.1:9500": true, "node.example:9500": true, "https://node.example": true, "http://192.0.2.1:8080": true,
		"": false, "node.example": false, ":9500": false, "ftp://node.example": false, "https://": false, "https://me@node.example": false,
		"https://node.example/path": false, "https://node.example?x": false, "https://%zz": false,
	} {
		section := NodeSection{Identity: "ephemeral", Drain: time.Second, Workers: config.Auto[int]{Auto: true}, Advertise: []string{text}}
		if err := section.Validate(); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// The addresses that a node publishes: the configured ones, or those of its
// listeners.
func TestWhereANodeIs(t *testing.T) {
	n := start(t, 2, config.Flag{Key: "node.advertise", Value: "node.example:9500,https://node.example", Name: "test"})
	at := n.selfProvider()
	if !slices.Equal(at.Overlay, []string{"node.example:9500"}) || !slices.Equal(at.HTTP, []string{"https://node.example"}) {
		t.Errorf("%+v", at)
	}
	n.stopAndWait(t)
	if at := (&Node{}).selfProvider(); at.ID != "" {
		t.Errorf("%+v", at)
	}
	list, err := n.dialable((&net.TCPAddr{IP: net.IPv4zero, Port: 9500}).String())
	testkit.Must(t, err)
	for _, one := range list {
		if host, port, err := net.SplitHostPort(one); err != nil || port != "9500" || net.ParseIP(host).IsLoopback() {
			t.Error(one)
		}
	}
	if all, err := n.dialable((&net.UnixAddr{Name: "x"}).String()); all != nil || err != nil {
		t.Errorf("%v, %v", all, err)
	}
}

// A node that may not ask the kernel for the addresses of the machine serves,
// and says why nobody is told where it is. What the kernel does in place of
// this is EAFNOSUPPORT, for the netlink socket that a unit forbids.
func TestTheKernelDoesNotSayWhereTheMachineIs(t *testing.T) {
	forbidden := func() ([]net.Addr, error) { return nil, os.NewSyscallError("netlinkrib", syscall.EAFNOSUPPORT) }
	everywhere := func(o *Options) {
		for i, one := range o.Sources.Flags {
			if one.Key == "overlay.addr" {
				o.Sources.Flags[i].Value = "0.0.0.0:0"
			}
		}
	}
	n := startWith(t, func(o *Options) {
		o.Addresses = forbidden
		everywhere(o)
	})
	n.waitReady(t)
	verdict := n.readiness.Evaluate()
	if reason := reasonFor(verdict, "node/addresses"); !strings.Contains(reason, "no address is published") || verdict.Degraded {
		t.Errorf("%q, degraded %v", reason, verdict.Degraded)
	}
	n.stopAndWait(t)

	n = startWith(t, everywhere)
	if reason := reasonFor(n.readiness.Evaluate(), "node/addresses"); reason != "" {
		t.Errorf("the kernel says it, and the reason is %q", reason)
	}
	n.stopAndWait(t)

	options := testOptions(t, config.Flag{Key: "http.lan", Value: "true", Name: "test"})
	options.Addresses = forbidden
	_, err := New(t.Context(), options)
	testkit.WantKind(t, err, fault.NotReady, "--lan")
	if next := fault.NextOf(err); !strings.Contains(next, "AF_NETLINK") {
		t.Errorf("next: %s", next)
	}
}

// Two parts in other processes that report their listeners at the same moment
// are both recorded.
func TestWhereANodeOfSeveralProcessesIs(t *testing.T) {
	identity, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	overlay, gateway := &remotePart{name: "overlay"}, &remotePart{name: gatewayPart}
	n := &Node{identity: identity, remotes: []*remotePart{overlay, gateway}}
	for range 1000 {
		for _, r := range n.remotes {
			r.lastStatus.Store(nil)
		}
		n.updateSelf(Config{})
		var both sync.WaitGroup
		for r, status := range map[*remotePart]partStatus{overlay: {Overlay: "192.0.2.1:9500"}, gateway: {HTTP: "192.0.2.1:8080", TLS: true}} {
			both.Go(func() {
				r.lastStatus.Store(&status)
				n.updateSelf(Config{})
			})
		}
		both.Wait()
		at := n.selfProvider()
		if !slices.Equal(at.Overlay, []string{"192.0.2.1:9500"}) || !slices.Equal(at.HTTP, []string{"https://192.0.2.1:8080"}) {
			t.Fatalf("%+v", at)
		}
	}
}
