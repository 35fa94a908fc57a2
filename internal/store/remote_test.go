package store

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/ingress"
	"micronode/internal/observe"
)

// serveRemote serves a store, and returns it as another process sees it.
func serveRemote(t *testing.T, s Store) *Remote {
	t.Helper()
	inv := flow.NewInventory()
	objects := NewObjectHandler(inv, ObjectHandlerSpec{
		Store: s, Uploads: 2, Submit: func(ctx context.Context, work func(context.Context) error) error { return work(ctx) },
	})
	table, err := ingress.NewTable(append(objects.Routes(), objects.PartRoutes()...)...)
	if err != nil {
		t.Fatal(err)
	}
	server, err := ingress.New(ingress.Options{
		Service: "gateway", Name: "http", Table: table, Times: ingress.DefaultHTTP(), Limits: ingress.DefaultLimits(),
		Inventory: inv, Metrics: observe.NewMetrics(observe.Build{}), Logger: slog.New(slog.DiscardHandler),
		Authorise: func(context.Context, ingress.AuthRequest) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := server.Listen(t.Context(), ingress.ListenOptions{Name: "http", Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- listener.Serve(context.Background()) }()
	c, err := client.New(client.Options{URL: "http://" + listener.Addr().String(), Retry: client.Retry{Tries: 1}})
	if err != nil {
		t.Fatal(err)
	}
	r := NewRemote(c)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		_ = listener.Drain(context.Background())
		<-served
	})
	return r
}

func newRemotePair(t *testing.T) (Store, *Remote) {
	t.Helper()
	ram := NewRAM(RAMSpec{Budget: 64 << 20, MaxObject: 32 << 20})
	t.Cleanup(func() { _ = ram.Close() })
	return ram, serveRemote(t, ram)
}

// largeBody is more than is fetched at once.
func largeBody() []byte {
	raw := make([]byte, 3*maxInline+17)
	for i := range raw {
		raw[i] = byte(i>>8) ^ byte(i)
	}
	return raw
}

// What is put remotely is stored, and what is stored can be read remotely: all
// of it, and every range.
func TestAStoreElsewhere(t *testing.T) {
	near, far := newRemotePair(t)
	ctx := t.Context()
	for _, raw := range [][]byte{nil, []byte("hello"), largeBody()} {
		want := b3.Of(raw)
		info, created, err := far.Put(ctx, bytes.NewReader(raw), PutOptions{Size: int64(len(raw)), Want: want, Class: Cached})
		if err != nil || !created || info != (Info{want, int64(len(raw)), Cached}) {
			t.Fatal(info, created, err)
		}
		if there, err := near.Stat(ctx, want); err != nil || there != info {
			t.Error(there, err)
		}
		info, created, err = far.Put(ctx, bytes.NewReader(raw), PutOptions{Size: Unknown, Want: want, Class: Cached})
		if err != nil || created || info.Class != Cached {
			t.Error(info, created, err)
		}
		info, created, err = far.Put(ctx, strings.NewReader("not even read"), PutOptions{Size: Unknown, Want: want})
		if err != nil || created || info.Class != Pinned {
			t.Error(info, created, err)
		}
		if there, err := far.Stat(ctx, want); err != nil || there != (Info{want, int64(len(raw)), Pinned}) {
			t.Error(there, err)
		}
		readAll(t, far, want, raw)
		if err := far.Verify(ctx, want, func(context.Context, int64) error { return nil }); err != nil {
			t.Error(err)
		}
		if err := far.Unpin(ctx, want); err != nil {
			t.Error(err)
		}
		if there, err := near.Stat(ctx, want); err != nil || there.Class != Cached {
			t.Error(there, err)
		}
	}
}

func readAll(t *testing.T, s Store, address b3.Address, raw []byte) {
	t.Helper()
	h, err := s.Open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	var whole bytes.Buffer
	if n, err := h.WriteTo(&whole); err != nil || n != int64(len(raw)) || !bytes.Equal(whole.Bytes(), raw) || h.Size() != n || h.Address() != address {
		t.Errorf("%d bytes, %v", n, err)
	}
	if kept, ok := h.Bytes(); ok != (len(raw) <= maxInline && raw != nil || raw == nil) || ok && !bytes.Equal(kept, raw) {
		t.Errorf("%d bytes are here: %t", len(kept), ok)
	}
	size := int64(len(raw))
	for _, part := range [][2]int64{{0, min(3, size)}, {size / 2, size / 3}, {size, 0}, {max(0, size-1), min(1, size)}} {
		var got bytes.Buffer
		if _, err := h.WriteRange(&got, part[0], part[1]); err != nil || !bytes.Equal(got.Bytes(), raw[part[0]:part[0]+part[1]]) {
			t.Errorf("%v: %d bytes, %v", part, got.Len(), err)
		}
		into := make([]byte, part[1]+1)
		if n, err := h.ReadAt(into, part[0]); int64(n) < part[1] || err != nil && err != io.EOF || !bytes.Equal(into[:part[1]], raw[part[0]:part[0]+part[1]]) {
			t.Errorf("%v: %d bytes, %v", part, n, err)
		}
	}
	if _, err := h.WriteRange(io.Discard, size, 1); fault.KindOf(err) != fault.InvalidRange {
		t.Error(err)
	}
	if _, err := h.ReadAt(make([]byte, 1), -1); fault.KindOf(err) != fault.InvalidRange {
		t.Error(err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if _, err := h.WriteTo(io.Discard); err == nil {
		t.Error("a closed handle was read")
	}
}

func TestAStoreElsewhereRefuses(t *testing.T) {
	near, far := newRemotePair(t)
	ctx := t.Context()
	absent := b3.Of([]byte("absent"))
	for name, c := range map[string]struct {
		do   func() error
		kind fault.Kind
	}{
		"open":   {func() error { _, err := far.Open(ctx, absent); return err }, fault.NotFound},
		"stat":   {func() error { _, err := far.Stat(ctx, absent); return err }, fault.NotFound},
		"delete": {func() error { return far.Delete(ctx, absent) }, fault.NotFound},
		"pin":    {func() error { return far.Pin(ctx, absent) }, fault.NotFound},
		"unpin":  {func() error { return far.Unpin(ctx, absent) }, fault.NotFound},
		"verify": {func() error { return far.Verify(ctx, absent, nil) }, fault.NotFound},
		"mismatch": {func() error {
			_, _, err := far.Put(ctx, strings.NewReader("x"), PutOptions{Size: 1, Want: absent})
			return err
		}, fault.IntegrityFail},
		"longer":  {func() error { _, _, err := far.Put(ctx, strings.NewReader("x"), PutOptions{}); return err }, fault.Malformed},
		"shorter": {func() error { _, _, err := far.Put(ctx, strings.NewReader("x"), PutOptions{Size: 2}); return err }, fault.Malformed},
		"broken":  {func() error { _, _, err := far.Put(ctx, failingReader{}, PutOptions{}); return err }, fault.Internal},
		"too much": {func() error {
			_, _, err := far.Put(ctx, io.LimitReader(garbageReader{}, 40<<20), PutOptions{Size: 40 << 20})
			return err
		}, fault.BodyTooLarge},
	} {
		if err := c.do(); fault.KindOf(err) != c.kind {
			t.Errorf("%s: %v", name, err)
		}
	}
	// One that is deleted while it is open can be read to its end only if it is
	// small.
	info, _, err := near.Put(ctx, bytes.NewReader(largeBody()), PutOptions{Size: Unknown})
	if err != nil {
		t.Fatal(err)
	}
	h, err := far.Open(ctx, info.Address)
	if err != nil {
		t.Fatal(err)
	}
	if err := far.Delete(ctx, info.Address); err != nil {
		t.Error(err)
	}
	if _, err := h.WriteTo(io.Discard); fault.KindOf(err) != fault.NotFound {
		t.Error(err)
	}
	paced := fault.New("test", fault.Canceled, "stop")
	if _, _, err := near.Put(ctx, strings.NewReader("hello"), PutOptions{Size: 5}); err != nil {
		t.Fatal(err)
	}
	if err := far.Verify(ctx, b3.Of([]byte("hello")), func(context.Context, int64) error { return paced }); err != error(paced) {
		t.Error(err)
	}
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, io.ErrNoProgress }

type garbageReader struct{}

func (garbageReader) Read(p []byte) (int, error) { return len(p), nil }

func TestAStoreElsewhereIsListed(t *testing.T) {
	near, far := newRemotePair(t)
	var want []Info
	for i := range 5 {
		info, _, err := near.Put(t.Context(), strings.NewReader(strings.Repeat("x", i)), PutOptions{Size: int64(i), Class: Class(i % 2)})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, info)
	}
	var got []Info
	var after b3.Address
	for {
		page, err := far.List(t.Context(), after, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		got = append(got, page...)
		after = page[len(page)-1].Address
	}
	if len(got) != len(want) {
		t.Errorf("%v, not %v", got, want)
	}
	if none, err := far.List(t.Context(), after, 0); none != nil || err != nil {
		t.Error(none, err)
	}
	if far.Usage() != (Usage{}) || far.Counts() != (Counts{}) {
		t.Error("it knows before it has looked")
	}
	if err := far.Refresh(t.Context()); err != nil || far.Usage().Objects != 5 || far.Usage() != near.Usage() {
		t.Error(far.Usage(), err)
	}
}

// Every call fails with a proper error when the other process is not there.
func TestAStoreThatIsAway(t *testing.T) {
	c, err := client.New(client.Options{URL: "http://127.0.0.1:1", Retry: client.Retry{Tries: 1}})
	if err != nil {
		t.Fatal(err)
	}
	far := NewRemote(c)
	defer far.Close()
	_, opened := far.Open(t.Context(), b3.Of(nil))
	_, listed := far.List(t.Context(), b3.Address{}, 10)
	_, _, put := far.Put(t.Context(), strings.NewReader("x"), PutOptions{Size: 1, Want: b3.Of([]byte("x"))})
	for _, err := range []error{opened, listed, put, far.Refresh(t.Context())} {
		if fault.KindOf(err) != fault.NotReady {
			t.Error(err)
		}
	}
}

// The part routes validate their input strictly.
func TestThePartRoutesAreStrict(t *testing.T) {
	_, far := newRemotePair(t)
	for _, path := range []string{partObjectsPath, partObjectsPath + "?limit=0", partObjectsPath + "?limit=9999", partObjectsPath + "?limit=1&after=x", partObjectsPath + "/x"} {
		if err := far.client.Call(t.Context(), "GET", path, nil, nil); fault.KindOf(err) != fault.Malformed {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := far.client.Call(t.Context(), "PUT", partPinsPath+"x", nil, nil); fault.KindOf(err) != fault.Malformed {
		t.Error(err)
	}
}
