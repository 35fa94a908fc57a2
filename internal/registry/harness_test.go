package registry

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"micronode/client"
	"micronode/internal/flow"
	"micronode/internal/ingress"
	"micronode/internal/observe"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
	"micronode/internal/supervise"
	"micronode/internal/testkit"
)

// testRegistry is a registry behind a real server, as clients see it.
type testRegistry struct {
	*Registry
	t           testing.TB
	url         string
	client      *http.Client
	supervisor  *supervise.Supervisor
	readiness   *observe.Readiness
	inventory   *flow.Inventory
	observed    *observe.Metrics
	log         *eventLog
	allowAborts bool // the test makes tasks fail, or the drain too short, on purpose
	stop        context.CancelFunc
	done        chan *supervise.Report
}

// eventLog holds the audit events.
type eventLog struct {
	mu     sync.Mutex
	events []Event
}

func (l *eventLog) add(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

// eventMarker is published by a test to know that earlier events have arrived.
const eventMarker EventType = "marker"

// flushedEvents waits until all earlier events have arrived, and returns those of a
// type.
func (r *testRegistry) flushedEvents(what EventType) []Event {
	r.t.Helper()
	before := len(r.log.ofType(eventMarker))
	r.audit(Event{Type: eventMarker})
	testkit.WaitFor(r.t, "the marker has arrived", func() bool { return len(r.log.ofType(eventMarker)) > before })
	return r.log.ofType(what)
}

// ofType returns the events of a type.
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

// drainTime is how long a drain may take in all: long, for a busy machine.
const drainTime = 30 * time.Second

// logKey is the key that the logs of tests are signed with.
var logKey = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))

// option changes the Spec of a testRegistry.
type option func(*Spec)

func withJournal(j Journal) option           { return func(s *Spec) { s.Journal = j } }
func withConfig(c func(*Config)) option      { return func(s *Spec) { c(&s.Config) } }
func withSharedStorage(s *Spec)              { s.Shared = true }
func newRAMJournal() Journal                 { return journal.NewRAM(journal.RAMSpec{}) }
func disablePeriodicTasks(c *Config)         { c.Storage.CheckpointInterval, c.VerifyPause = time.Hour, 0 }
func (r *testRegistry) ctx() context.Context { return r.t.Context() }

// startRegistry runs a registry, by default in memory and with the default settings.
func startRegistry(t testing.TB, settings ...option) *testRegistry {
	t.Helper()
	return startRegistryDraining(t, drainTime, settings...)
}

// startRegistryDraining runs a registry with a given drain timeout.
func startRegistryDraining(t testing.TB, drain time.Duration, settings ...option) *testRegistry {
	t.Helper()
	h := &testRegistry{t: t, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 128}}, log: &eventLog{}, done: make(chan *supervise.Report, 1)}
	supervisor, err := supervise.New(supervise.Options{DrainTimeout: drain, Jitter: func(lo, _ time.Duration) time.Duration { return lo }, Stages: []supervise.Stage{{Name: "state"}, {Name: "workers"}, {Name: "intake"}}})
	testkit.Must(t, err)
	inv, metrics := flow.NewInventory(), observe.NewMetrics(observe.Build{})
	h.supervisor, h.readiness, h.inventory, h.observed = supervisor, observe.NewReadiness(inv, supervisor), inv, metrics
	metrics.Attach(observe.Sources{Inventory: inv, Supervisor: supervisor, Readiness: h.readiness})
	spec := Spec{Config: DefaultConfig(), Key: logKey, Skew: 2 * time.Minute, Metrics: metrics, Readiness: h.readiness}
	disablePeriodicTasks(&spec.Config)
	spec.Config.Storage.Timeout = time.Minute // a busy machine takes its time
	for _, set := range settings {
		set(&spec)
	}
	if spec.Journal == nil {
		spec.Journal = newRAMJournal()
	}
	h.Registry, err = New(t.Context(), inv, spec)
	testkit.Must(t, err)
	if c, ok := spec.Journal.(*countingJournal); ok {
		c.scannedAtOpen = c.scanned.Load()
	}
	testkit.Must(t, h.Add(supervisor, Stages{State: "state", Workers: "workers", Intake: "intake"}, h.log.add))
	h.serve(inv, metrics)
	h.run()
	t.Cleanup(h.close)
	return h
}

// serve serves the routes over HTTP.
func (r *testRegistry) serve(inv *flow.Inventory, metrics *observe.Metrics) {
	table, err := ingress.NewTable(r.Routes()...)
	testkit.Must(r.t, err)
	limits := ingress.DefaultLimits()
	limits.Rate, limits.Burst, limits.WorkRate, limits.ConnsPerIP = 1_000_000, 1_000_000, 1_000_000, 4096
	limits.Streams = 4096
	times := ingress.DefaultHTTP()
	times.Deadline, times.FirstByte = time.Minute, time.Minute // a busy machine takes its time
	server, err := ingress.New(ingress.Options{
		Service: "gateway", Name: "http", Table: table, Times: times, Limits: limits,
		Authorise: func(context.Context, ingress.AuthRequest) error { return nil },
		Inventory: inv, Metrics: metrics, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Warm: r.WarmRoutes(),
	})
	testkit.Must(r.t, err)
	var plain net.ListenConfig
	inner, err := plain.Listen(r.ctx(), "tcp", "127.0.0.1:0")
	testkit.Must(r.t, err)
	listener := server.Attach(smallBufferListener{inner}, ingress.ListenOptions{Name: "http", Addr: inner.Addr().String(), Warm: true})
	r.url = "http://" + listener.Addr().String()
	testkit.Must(r.t, r.supervisor.Add(supervise.Service{Service: "gateway", Name: "http", Stage: "intake", Serve: listener.Serve, Drain: listener.Drain}))
}

// smallBufferListener is a listener whose connections have small write buffers, so that a
// client that does not read is detected soon.
type smallBufferListener struct{ net.Listener }

func (s smallBufferListener) Accept() (net.Conn, error) {
	conn, err := s.Listener.Accept()
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(1) // the test that needs it would fail without it
	}
	return conn, err
}

func (r *testRegistry) run() {
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() {
		report, _ := r.supervisor.Run(ctx)
		r.done <- report
	}()
}

// close drains the registry and checks that nothing is left.
func (r *testRegistry) close() { r.drain() }

// drain is close that returns the report; nil if it was closed before.
func (r *testRegistry) drain() *supervise.Report {
	if r.stop == nil {
		return nil
	}
	r.stop()
	r.stop = nil
	report := <-r.done
	if !r.allowAborts && (len(report.Aborted) > 0 || report.Restarts > 0) {
		r.t.Errorf("the drain aborted %v; %d restarts", report.Aborted, report.Restarts)
	}
	r.client.CloseIdleConnections()
	testkit.Must(r.t, r.Close())
	return report
}

// call sends a request and reads the answer, which must be of this status.
func (r *testRegistry) call(method, path string, body, answer any, want int) []byte {
	r.t.Helper()
	status, data := r.send(r.ctx(), method, path, body)
	if status != want {
		r.t.Fatalf("%s %s: %d %s, want %d", method, path, status, data, want)
	}
	if answer != nil {
		if err := json.Unmarshal(data, answer); err != nil {
			r.t.Fatalf("%s %s: %v in %s", method, path, err, data)
		}
	}
	return data
}

// send sends a request and returns any result. A status of zero means that there was
// no answer.
func (r *testRegistry) send(ctx context.Context, method, path string, body any) (int, []byte) {
	var in io.Reader
	switch body := body.(type) {
	case nil:
	case []byte:
		in = bytes.NewReader(body)
	case string:
		in = strings.NewReader(body)
	case rawBody:
		in = bytes.NewReader(body.data)
	default:
		data, err := json.Marshal(body)
		if err != nil {
			return 0, []byte(err.Error())
		}
		in = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, r.url+path, in)
	if err != nil {
		return 0, []byte(err.Error())
	}
	if dressed, ok := body.(rawBody); ok {
		request.Header = dressed.header
		if dressed.chunked {
			request.ContentLength = -1
		}
	}
	response, err := r.client.Do(request)
	if err != nil {
		return 0, []byte(err.Error())
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, []byte(err.Error())
	}
	return response.StatusCode, data
}

// rawBody is a body that is sent in an unusual way.
type rawBody struct {
	header  http.Header
	data    []byte
	chunked bool
}

// expectRefusal sends a request that must be refused with a code, and returns the
// problem.
func (r *testRegistry) expectRefusal(method, path string, body any, code string) map[string]any {
	r.t.Helper()
	status, data := r.send(r.ctx(), method, path, body)
	var problem map[string]any
	if err := json.Unmarshal(data, &problem); err != nil || problem["code"] != code {
		r.t.Fatalf("%s %s: %d %s, want %s", method, path, status, data, code)
	}
	if problem["next"] == "" {
		r.t.Errorf("%s %s: %s names no next step", method, path, code)
	}
	return problem
}

// metricSum reads a metric of the registry, summed over the series that have these
// labels, each written name=value.
func (r *testRegistry) metricSum(metric string, labels ...string) (sum float64) {
	r.t.Helper()
	families, err := r.observed.Gatherer().Gather()
	testkit.Must(r.t, err)
	for _, family := range families {
		if family.GetName() != metric {
			continue
		}
		for _, series := range family.GetMetric() {
			if hasLabels(series, append(labels, "service=registry")) {
				sum += series.GetCounter().GetValue() + series.GetGauge().GetValue()
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

// expectWriteRefused sends a write that must be refused, and checks for a typed answer
// with a next step, one audit event, one count, and no other effect.
func (r *testRegistry) expectWriteRefused(action, method, path string, body any, code string) {
	r.t.Helper()
	before, refusals := r.metricSum("registry_rejected_total", "action="+action, "kind="+code), len(r.flushedEvents(EventRefused))
	head, open := r.view.Load().expectedHead(), len(r.pending.listOpen(r.now()))
	r.expectRefusal(method, path, body, code)
	if after := r.metricSum("registry_rejected_total", "action="+action, "kind="+code); after != before+1 {
		r.t.Errorf("%s %s: %s was counted %v times", method, path, code, after-before)
	}
	if events := r.flushedEvents(EventRefused); len(events) != refusals+1 || !strings.HasPrefix(events[refusals].Detail, action+": ") {
		r.t.Errorf("%s %s: told for the record as %+v", method, path, events[refusals:])
	}
	now := r.view.Load().expectedHead()
	if len(r.pending.listOpen(r.now())) > open || (now == nil) != (head == nil) || now != nil && *now != *head {
		r.t.Errorf("%s %s: refused, and yet something was done", method, path)
	}
}

// signer is a signer with a key.
type signer struct {
	id  string
	key ed25519.PrivateKey
}

func newSigner(id string) signer {
	seed := bytes.Repeat([]byte{byte(len(id))}, ed25519.SeedSize)
	copy(seed, id)
	return signer{id, ed25519.NewKeyFromSeed(seed)}
}

var alice, bob, carol = newSigner("alice"), newSigner("bob"), newSigner("carol")

func (s signer) public() string {
	var key ledger.PublicKey
	copy(key[:], s.key.Public().(ed25519.PublicKey))
	return key.String()
}

func (s signer) approve(p client.Proposed) client.Approval {
	return client.Approval{SignerID: s.id, Algo: "ed25519", Sig: ed25519.Sign(s.key, p.SignThis), SignedAt: time.Now().UTC().Truncate(time.Millisecond)}
}

// init begins a registry of two out of three.
func (r *testRegistry) init() client.Initialised {
	r.t.Helper()
	var begun client.Initialised
	r.call("POST", "/registry/init", initRequest(2, alice, bob, carol), &begun, 201)
	return begun
}

// initOne begins a registry of one out of three, which grows in half the time.
func (r *testRegistry) initOne() client.Initialised {
	r.t.Helper()
	var begun client.Initialised
	r.call("POST", "/registry/init", initRequest(1, alice, bob, carol), &begun, 201)
	return begun
}

func initRequest(m int, signers ...signer) client.InitRequest {
	request := client.InitRequest{M: m}
	for _, s := range signers {
		request.Keys = append(request.Keys, client.RegistryKey{SignerID: s.id, Public: s.public()})
	}
	return request
}

// putName is the operation that puts a name.
func putName(id, manifest string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"op":"put","item":{"kind":"name","id":%q,"manifest":"b3:%064x"}}`, id, manifest))
}

func proposalRequest(ops ...json.RawMessage) client.ProposalRequest {
	return client.ProposalRequest{SchemaVersion: "1.0.0", Ops: ops}
}

// proposeApproved proposes, and has some signers approve it.
func (r *testRegistry) proposeApproved(ops []json.RawMessage, by ...signer) client.Proposed {
	r.t.Helper()
	var p client.Proposed
	r.call("POST", "/registry/proposals", proposalRequest(ops...), &p, 202)
	for _, s := range by {
		r.call("POST", "/registry/approvals/"+p.ProposalID, s.approve(p), nil, 200)
	}
	return p
}

// commitChange proposes, approves and commits.
func (r *testRegistry) commitChange(ops ...json.RawMessage) client.RegistryHead {
	r.t.Helper()
	p := r.proposeApproved(ops, alice, bob)
	var head client.RegistryHead
	r.call("POST", "/registry/commit/"+p.ProposalID, nil, &head, 201)
	return head
}
