package index

import (
	"context"
	"crypto/ed25519"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/index/hedge"
	"micronode/internal/index/record"
	"micronode/internal/ingress"
	"micronode/internal/oap"
	"micronode/internal/observe"
	"micronode/internal/store"
	"micronode/internal/supervise"
	"micronode/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testIndex is an index with real components except for the network: the peers
// of the DHT and of the overlay are fake.
type testIndex struct {
	*Index
	t           testing.TB
	supervisor  *supervise.Supervisor
	readiness   *observe.Readiness
	inventory   *flow.Inventory
	observed    *observe.Metrics
	ram         *store.RAM
	server      *ingress.Server
	log         *eventLog
	allowAborts bool // the test makes tasks fail, or the drain too short: that is no error here
	stop        context.CancelFunc
	done        chan *supervise.Report
}

// eventLog is the events that were published.
type eventLog struct {
	mu     sync.Mutex
	events []Event
	hold   chan struct{} // nil, or blocks the reader until it is closed
}

func (l *eventLog) add(e Event) {
	if l.hold != nil {
		<-l.hold
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

func (l *eventLog) ofType(what EventType) (found []Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if e.Type == what {
			found = append(found, e)
		}
	}
	return found
}

// keyOfNode makes the key of a fake node.
func keyOfNode(name string) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(append([]byte(name), make([]byte, ed25519.SeedSize-len(name))...))
}

func idOfNode(name string) oap.PeerID {
	return oap.PeerIDOf(keyOfNode(name).Public().(ed25519.PublicKey))
}

// providerOf is the provider of a fake node, on this machine.
func providerOf(name string) record.Provider {
	return record.Provider{ID: idOfNode(name).String(), Overlay: []string{"127.0.0.1:9500"}, HTTP: []string{"http://127.0.0.1:8080"}, Region: "eu-west", Seen: time.Now()}
}

// fakeEngine is a DHT with fake peers: its closest targets by name, and its
// walk.
type fakeEngine struct {
	mu       sync.Mutex
	near     []hedge.Target
	walk     func(ctx context.Context, q record.Question) (record.Answer, error)
	provided []b3.Address
	fail     error // of Provide
	closed   atomic.Int32
	size     atomic.Int64
	pause    time.Duration // of Provide
}

func newFakeEngine(near ...hedge.Target) *fakeEngine {
	n := &fakeEngine{near: near}
	n.size.Store(20)
	return n
}

func (f *fakeEngine) Closest(_ record.Question, most int) []hedge.Target {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.near[:min(most, len(f.near))]
}

func (f *fakeEngine) Walk(ctx context.Context, q record.Question) (record.Answer, error) {
	f.mu.Lock()
	walk := f.walk
	f.mu.Unlock()
	if walk == nil {
		return record.Answer{}, nil
	}
	return walk(ctx, q)
}

func (f *fakeEngine) Provide(ctx context.Context, address b3.Address) error {
	if err := flow.Sleep(ctx, f.pause); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.provided = append(f.provided, address)
	return f.fail
}

func (f *fakeEngine) announced() []b3.Address {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.provided)
}

func (f *fakeEngine) Publish(context.Context, record.Name) error { return nil }
func (f *fakeEngine) Addrs() []string                            { return []string{"/ip4/127.0.0.1/tcp/9700/p2p/x"} }
func (f *fakeEngine) Size() int                                  { return int(f.size.Load()) }
func (f *fakeEngine) Close() error                               { f.closed.Add(1); return nil }

// askFunc is the behaviour of a fake target.
type askFunc func(ctx context.Context, q record.Question) (record.Answer, error)

// target is a fake peer of the DHT.
func target(name string, s askFunc) hedge.Target {
	return hedge.Target{Key: "dht " + name, Source: record.DHT, Ask: s}
}

// answersAfter returns the providers, after a while.
func answersAfter(after time.Duration, providers ...record.Provider) askFunc {
	return func(ctx context.Context, _ record.Question) (record.Answer, error) {
		if err := flow.Sleep(ctx, after); err != nil {
			return record.Answer{}, err
		}
		return record.Answer{Providers: providers}, nil
	}
}

// neverAnswers is silent until its context ends.
func neverAnswers(ctx context.Context, _ record.Question) (record.Answer, error) {
	<-ctx.Done()
	return record.Answer{}, flow.Ended(ctx, "silent")
}

// answersEmpty returns an empty answer.
func answersEmpty(context.Context, record.Question) (record.Answer, error) {
	return record.Answer{}, nil
}

// alwaysFails fails at once.
func alwaysFails(context.Context, record.Question) (record.Answer, error) {
	return record.Answer{}, fault.New("test", fault.UpstreamFailed, "it is broken")
}

// countingAsk counts how often it is asked.
func countingAsk(n *atomic.Int64, s askFunc) askFunc {
	return func(ctx context.Context, q record.Question) (record.Answer, error) {
		n.Add(1)
		return s(ctx, q)
	}
}

// fakeOverlay is an overlay with fake peers.
type fakeOverlay struct {
	mu      sync.Mutex
	peers   []ConnectedPeer
	answers map[oap.PeerID]askFunc
}

func (f *fakeOverlay) join(name string, s askFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answers == nil {
		f.answers = map[oap.PeerID]askFunc{}
	}
	f.peers = append(f.peers, ConnectedPeer{ID: idOfNode(name), Addr: "127.0.0.1:9501", RTT: 5 * time.Millisecond})
	f.answers[idOfNode(name)] = s
}

func (f *fakeOverlay) ConnectedPeers() []ConnectedPeer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.peers)
}

func (f *fakeOverlay) Ask(ctx context.Context, peer oap.PeerID, q record.Question) (record.Answer, error) {
	f.mu.Lock()
	say := f.answers[peer]
	f.mu.Unlock()
	return say(ctx, q)
}

func (f *fakeOverlay) Open(context.Context, b3.Address, oap.PeerID) (io.ReadCloser, error) {
	return nil, fault.New("test", fault.NotFound, "nothing flows here")
}

func (f *fakeOverlay) OpenPart(context.Context, b3.Address, oap.PeerID, oap.View, int64, int64) (io.ReadCloser, error) {
	return nil, fault.New("test", fault.NotFound, "nothing flows here")
}

// fakeRegistry plays a registry.
type fakeRegistry map[string]b3.Address

func (f fakeRegistry) Name(name string) (b3.Address, uint64, bool) {
	manifest, ok := f[name]
	return manifest, 7, ok
}

// fakeListener records the calls that it gets: + for an object that was added, - for
// one that was removed, ? for a rescan.
type fakeListener struct {
	mu    sync.Mutex
	heard []string
}

func (f *fakeListener) note(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard = append(f.heard, text)
}

func (f *fakeListener) ObjectAdded(a b3.Address)   { f.note("+" + a.String()) }
func (f *fakeListener) ObjectRemoved(a b3.Address) { f.note("-" + a.String()) }
func (f *fakeListener) Rescan()                    { f.note("?") }

func (f *fakeListener) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.heard, " ")
}

// option changes the spec of a testIndex.
type option func(*Spec)

func withEngine(n *fakeEngine) option        { return func(s *Spec) { s.Engine = n } }
func withPeers(v *fakeOverlay) option        { return func(s *Spec) { s.Overlay = v } }
func withConfig(change func(*Config)) option { return func(s *Spec) { change(&s.Config) } }
func withRegistry(names fakeRegistry) option { return func(s *Spec) { s.Registry = names } }
func withNamedPeers(peers ...string) option {
	return func(s *Spec) { s.Peers = func() []string { return peers } }
}
func withStore(change func(store.Store) store.Store) option {
	return func(s *Spec) { s.Store = change(s.Store) }
}

var testStages = Stages{State: "state", Workers: "workers"}

// build makes an index that does not run yet.
func build(t testing.TB, settings ...option) *testIndex {
	t.Helper()
	supervisor, err := supervise.New(supervise.Options{DrainTimeout: 5 * time.Second, Jitter: func(lo, _ time.Duration) time.Duration { return lo },
		Stages: []supervise.Stage{{Name: "state"}, {Name: "workers"}, {Name: "intake"}}})
	testkit.Must(t, err)
	inv, metrics := flow.NewInventory(), observe.NewMetrics(observe.Build{})
	r := &testIndex{t: t, supervisor: supervisor, inventory: inv, observed: metrics, log: &eventLog{}, done: make(chan *supervise.Report, 1),
		readiness: observe.NewReadiness(inv, supervisor)}
	metrics.Attach(observe.Sources{Inventory: inv, Supervisor: supervisor, Readiness: r.readiness})
	r.ram = store.NewRAM(store.RAMSpec{Budget: 64 << 20, MaxObject: 1 << 20})
	spec := Spec{Config: DefaultConfig(), Key: keyOfNode("self"), Skew: 2 * time.Minute, Store: r.ram, Metrics: metrics, Readiness: r.readiness,
		Self: func() record.Provider { return providerOf("self") }, Peers: func() []string { return []string{"127.0.0.1:9500"} }}
	for _, set := range settings {
		set(&spec)
	}
	testkit.Must(t, spec.Config.Validate())
	r.Index, err = New(t.Context(), inv, supervisor, testStages, spec)
	testkit.Must(t, err)
	testkit.Must(t, r.Add(supervisor, testStages, r.log.add))
	table, err := ingress.NewTable(r.Routes()...)
	testkit.Must(t, err)
	limits := ingress.DefaultLimits()
	limits.Rate, limits.Burst, limits.WorkRate, limits.Inflight, limits.ConnsPerIP = 1_000_000, 1_000_000, 1_000_000, 10_000, 4096
	r.server, err = ingress.New(ingress.Options{
		Service: "gateway", Name: "http", Table: table, Times: ingress.DefaultHTTP(), Limits: limits,
		Authorise: func(context.Context, ingress.AuthRequest) error { return nil },
		Inventory: inv, Metrics: metrics, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Warm: r.WarmRoutes(),
	})
	testkit.Must(t, err)
	return r
}

// open makes an index and runs it until the test ends.
func open(t testing.TB, settings ...option) *testIndex {
	t.Helper()
	r := build(t, settings...)
	r.run()
	t.Cleanup(func() { r.stopAndReport() })
	return r
}

func (ti *testIndex) run() {
	ctx, stop := context.WithCancel(context.Background())
	ti.stop = stop
	go func() {
		report, _ := ti.supervisor.Run(ctx)
		ti.done <- report
	}()
}

// stopAndReport stops the index and returns the report; nil if it was stopped
// before.
func (ti *testIndex) stopAndReport() *supervise.Report {
	if ti.stop == nil {
		return nil
	}
	ti.stop()
	ti.stop = nil
	report := <-ti.done
	if !ti.allowAborts && (len(report.Aborted) > 0 || report.Restarts > 0) {
		ti.t.Errorf("the drain aborted %v; %d restarts", report.Aborted, report.Restarts)
	}
	testkit.Must(ti.t, ti.Close())
	testkit.Must(ti.t, ti.ram.Close())
	return report
}

// put stores an object and notifies the index.
func (ti *testIndex) put(text string) b3.Address {
	ti.t.Helper()
	info, _, err := ti.ram.Put(context.Background(), strings.NewReader(text), store.PutOptions{Size: int64(len(text))})
	testkit.Must(ti.t, err)
	ti.ObjectAdded(info.Address)
	return info.Address
}

// get sends a request to the index as a client does.
func (ti *testIndex) get(path string, header ...string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	answer := httptest.NewRecorder()
	ti.server.ServeHTTP(answer, request)
	return answer
}

// count reads a metric, summed over the series that have these labels.
func (ti *testIndex) count(metric string, labels ...string) (sum float64) {
	ti.t.Helper()
	families, err := ti.observed.Gatherer().Gather()
	testkit.Must(ti.t, err)
	for _, family := range families {
		if family.GetName() != metric {
			continue
		}
		for _, series := range family.GetMetric() {
			if hasLabels(series, append(labels, "service=index")) {
				sum += series.GetCounter().GetValue() + series.GetGauge().GetValue() + float64(series.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

func hasLabels(series *dto.Metric, wanted []string) bool {
	for _, want := range wanted {
		if !slices.ContainsFunc(series.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName()+"="+l.GetValue() == want }) {
			return false
		}
	}
	return true
}

func address(text string) b3.Address { return b3.Of([]byte(text)) }

func byAddress(a b3.Address) record.ID { return record.ID{Kind: record.CID, Address: a} }

func mustParseID(t testing.TB, text string) record.ID {
	t.Helper()
	id, err := record.ParseID(text)
	testkit.Must(t, err)
	return id
}

// signed is a record of a name.
func signed(node, name string, manifest b3.Address, seq uint64) *record.Name {
	now := time.Now()
	one := record.SignName(keyOfNode(node), record.Name{Name: name, Manifest: manifest, Seq: seq, Issued: now, Expires: now.Add(time.Hour)})
	return &one
}

func answersName(name *record.Name) askFunc {
	return func(context.Context, record.Question) (record.Answer, error) { return record.Answer{Name: name}, nil }
}

// providerIDs are the providers of an answer.
func providerIDs(r Resolution) (all []string) {
	for _, one := range r.Providers {
		all = append(all, one.Provider.ID)
	}
	return all
}

// busyStore is a store that is busy.
type busyStore struct{ store.Store }

func (busyStore) Stat(context.Context, b3.Address) (store.Info, error) {
	return store.Info{}, fault.New("test", fault.StorageBusy, "the store is busy")
}
