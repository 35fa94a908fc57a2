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
)

// rig is an index with real parts all around it, but for the network: the peers
// of the DHT and of the overlay are played.
type rig struct {
	*Index
	t          testing.TB
	supervisor *supervise.Supervisor
	readiness  *observe.Readiness
	inventory  *flow.Inventory
	observed   *observe.Metrics
	ram        *store.RAM
	server     *ingress.Server
	log        *told
	rough      bool // the test makes tasks fail, or the drain too short: that is not a mistake here
	stop       context.CancelFunc
	done       chan *supervise.Report
}

// told is what was told for the record.
type told struct {
	mu     sync.Mutex
	events []Event
	hold   chan struct{} // nil, or until it is closed nothing is taken
}

func (l *told) add(e Event) {
	if l.hold != nil {
		<-l.hold
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

func (l *told) of(what EventType) (found []Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if e.Type == what {
			found = append(found, e)
		}
	}
	return found
}

// keyOfNode makes the key of a played node.
func keyOfNode(name string) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(append([]byte(name), make([]byte, ed25519.SeedSize-len(name))...))
}

func idOfNode(name string) oap.PeerID {
	return oap.PeerIDOf(keyOfNode(name).Public().(ed25519.PublicKey))
}

// where is where a played node says that it is: on this machine.
func where(name string) record.Provider {
	return record.Provider{ID: idOfNode(name).String(), Overlay: []string{"127.0.0.1:9500"}, HTTP: []string{"http://127.0.0.1:8080"}, Region: "eu-west", Seen: time.Now()}
}

// network plays the peers of the DHT: its near targets by name, and its walk.
type network struct {
	mu       sync.Mutex
	near     []hedge.Target
	walk     func(ctx context.Context, q record.Question) (record.Answer, error)
	provided []b3.Address
	fail     error // of Provide
	closed   atomic.Int32
	size     atomic.Int64
	pause    time.Duration // of Provide
}

func newNetwork(near ...hedge.Target) *network {
	n := &network{near: near}
	n.size.Store(20)
	return n
}

func (n *network) Near(_ record.Question, most int) []hedge.Target {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.near[:min(most, len(n.near))]
}

func (n *network) Walk(ctx context.Context, q record.Question) (record.Answer, error) {
	n.mu.Lock()
	walk := n.walk
	n.mu.Unlock()
	if walk == nil {
		return record.Answer{}, nil
	}
	return walk(ctx, q)
}

func (n *network) Provide(ctx context.Context, address b3.Address) error {
	if err := flow.Sleep(ctx, n.pause); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.provided = append(n.provided, address)
	return n.fail
}

func (n *network) announced() []b3.Address {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.provided)
}

func (n *network) Publish(context.Context, record.Name) error { return nil }
func (n *network) Addrs() []string                            { return []string{"/ip4/127.0.0.1/tcp/9700/p2p/x"} }
func (n *network) Size() int                                  { return int(n.size.Load()) }
func (n *network) Close() error                               { n.closed.Add(1); return nil }

// speech is what a played target says.
type speech func(ctx context.Context, q record.Question) (record.Answer, error)

// target plays a peer of the DHT.
func target(name string, s speech) hedge.Target {
	return hedge.Target{Key: "dht " + name, Source: record.DHT, Ask: s}
}

// knowing names those who have it, after a while.
func knowing(after time.Duration, providers ...record.Provider) speech {
	return func(ctx context.Context, _ record.Question) (record.Answer, error) {
		if err := flow.Sleep(ctx, after); err != nil {
			return record.Answer{}, err
		}
		return record.Answer{Providers: providers}, nil
	}
}

// silent says nothing for as long as it is asked.
func silent(ctx context.Context, _ record.Question) (record.Answer, error) {
	<-ctx.Done()
	return record.Answer{}, flow.Ended(ctx, "silent")
}

// ignorant knows nothing.
func ignorant(context.Context, record.Question) (record.Answer, error) { return record.Answer{}, nil }

// failing fails at once.
func failing(context.Context, record.Question) (record.Answer, error) {
	return record.Answer{}, fault.New("test", fault.UpstreamFailed, "it is broken")
}

// counted counts how often it is asked.
func counted(n *atomic.Int64, s speech) speech {
	return func(ctx context.Context, q record.Question) (record.Answer, error) {
		n.Add(1)
		return s(ctx, q)
	}
}

// village plays the peers of the overlay.
type village struct {
	mu    sync.Mutex
	peers []Neighbour
	says  map[oap.PeerID]speech
}

func (v *village) join(name string, s speech) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.says == nil {
		v.says = map[oap.PeerID]speech{}
	}
	v.peers = append(v.peers, Neighbour{ID: idOfNode(name), Addr: "127.0.0.1:9501", RTT: 5 * time.Millisecond})
	v.says[idOfNode(name)] = s
}

func (v *village) Neighbours() []Neighbour {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.peers)
}

func (v *village) Ask(ctx context.Context, peer oap.PeerID, q record.Question) (record.Answer, error) {
	v.mu.Lock()
	say := v.says[peer]
	v.mu.Unlock()
	return say(ctx, q)
}

func (v *village) Open(context.Context, b3.Address, oap.PeerID) (io.ReadCloser, error) {
	return nil, fault.New("test", fault.NotFound, "nothing flows here")
}

// decided plays a registry.
type decided map[string]b3.Address

func (l decided) Name(name string) (b3.Address, uint64, bool) {
	manifest, ok := l[name]
	return manifest, 7, ok
}

// setting changes what a rig is made of.
type setting func(*Spec)

func over(n *network) setting                 { return func(s *Spec) { s.Engine = n } }
func among(v *village) setting                { return func(s *Spec) { s.Overlay = v } }
func with(change func(*Config)) setting       { return func(s *Spec) { change(&s.Config) } }
func governed(names decided) setting          { return func(s *Spec) { s.Registry = names } }
func at(where func() record.Provider) setting { return func(s *Spec) { s.Self = where } }
func onStore(change func(store.Store) store.Store) setting {
	return func(s *Spec) { s.Store = change(s.Store) }
}

var testStages = Stages{State: "state", Workers: "workers"}

// build makes an index that does not run yet.
func build(t testing.TB, settings ...setting) *rig {
	t.Helper()
	supervisor, err := supervise.New(supervise.Options{Total: 5 * time.Second, Jitter: func(lo, _ time.Duration) time.Duration { return lo },
		Stages: []supervise.Stage{{Name: "state"}, {Name: "workers"}, {Name: "intake"}}})
	must(t, err)
	inv, metrics := flow.NewInventory(), observe.NewMetrics(observe.Build{})
	r := &rig{t: t, supervisor: supervisor, inventory: inv, observed: metrics, log: &told{}, done: make(chan *supervise.Report, 1),
		readiness: observe.NewReadiness(inv, supervisor)}
	metrics.Watch(observe.Sources{Inventory: inv, Supervisor: supervisor, Readiness: r.readiness})
	r.ram = store.NewRAM(inv, store.RAMSpec{Service: "store", Budget: 64 << 20, MaxObject: 1 << 20})
	spec := Spec{Config: DefaultConfig(), Key: keyOfNode("self"), Skew: 2 * time.Minute, Store: r.ram, Metrics: metrics, Readiness: r.readiness,
		Self: func() record.Provider { return where("self") }}
	for _, set := range settings {
		set(&spec)
	}
	must(t, spec.Config.Validate())
	r.Index, err = New(t.Context(), inv, supervisor, testStages, spec)
	must(t, err)
	must(t, r.Add(supervisor, testStages, r.log.add))
	table, err := ingress.NewTable(r.Routes()...)
	must(t, err)
	limits := ingress.DefaultLimits()
	limits.Rate, limits.Burst, limits.WorkRate, limits.Inflight, limits.ConnsPerIP = 1_000_000, 1_000_000, 1_000_000, 10_000, 4096
	r.server, err = ingress.New(ingress.Options{
		Service: "gateway", Name: "http", Table: table, Times: ingress.DefaultHTTP(), Limits: limits,
		Authorise: func(context.Context, ingress.Ask) error { return nil },
		Inventory: inv, Metrics: metrics, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Warm: r.Shelves(),
	})
	must(t, err)
	return r
}

// open makes an index and runs it until the test ends.
func open(t testing.TB, settings ...setting) *rig {
	t.Helper()
	r := build(t, settings...)
	r.run()
	t.Cleanup(func() { r.drained() })
	return r
}

func (r *rig) run() {
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() {
		report, _ := r.supervisor.Run(ctx)
		r.done <- report
	}()
}

// drained stops the index and gives the report; nil if it was stopped before.
func (r *rig) drained() *supervise.Report {
	if r.stop == nil {
		return nil
	}
	r.stop()
	r.stop = nil
	report := <-r.done
	if !r.rough && (len(report.Aborted) > 0 || report.Restarts > 0) {
		r.t.Errorf("the drain aborted %v; %d restarts", report.Aborted, report.Restarts)
	}
	must(r.t, r.Close())
	must(r.t, r.ram.Close())
	return report
}

// put stores something and tells the index.
func (r *rig) put(text string) b3.Address {
	r.t.Helper()
	info, _, err := r.ram.Put(context.Background(), strings.NewReader(text), store.PutOptions{Size: int64(len(text))})
	must(r.t, err)
	r.Has(info.Address)
	return info.Address
}

// get asks the index as a client does.
func (r *rig) get(path string, header ...string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	answer := httptest.NewRecorder()
	r.server.ServeHTTP(answer, request)
	return answer
}

// count reads a metric, summed over the series that have these labels.
func (r *rig) count(metric string, labels ...string) (sum float64) {
	r.t.Helper()
	families, err := r.observed.Gatherer().Gather()
	must(r.t, err)
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

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// is holds an error to its kind.
func is(t testing.TB, err error, kind fault.Kind) {
	t.Helper()
	if fault.KindOf(err) != kind {
		t.Fatalf("the error is %v (%s), want %s", err, fault.KindOf(err), kind)
	}
	if fault.NextOf(err) == "" {
		t.Fatalf("%v names no next step", err)
	}
}

func address(text string) b3.Address { return b3.Of([]byte(text)) }

func byAddress(a b3.Address) record.ID { return record.ID{Kind: record.CID, Address: a} }

func parsed(t testing.TB, text string) record.ID {
	t.Helper()
	id, err := record.ParseID(text)
	must(t, err)
	return id
}

// signed is a record of a name.
func signed(node, name string, manifest b3.Address, seq uint64) *record.Name {
	now := time.Now()
	one := record.SignName(keyOfNode(node), record.Name{Name: name, Manifest: manifest, Seq: seq, Issued: now, Expires: now.Add(time.Hour)})
	return &one
}

func says(name *record.Name) speech {
	return func(context.Context, record.Question) (record.Answer, error) { return record.Answer{Name: name}, nil }
}

// ids are the providers of an answer.
func ids(r Resolution) (all []string) {
	for _, one := range r.Providers {
		all = append(all, one.Provider.ID)
	}
	return all
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

// broken is a store that is busy.
type broken struct{ store.Store }

func (broken) Stat(context.Context, b3.Address) (store.Info, error) {
	return store.Info{}, fault.New("test", fault.StorageBusy, "the store is busy")
}
