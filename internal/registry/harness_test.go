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
)

// house is a registry behind a real server, as strangers meet it.
type house struct {
	*Registry
	t          testing.TB
	url        string
	client     *http.Client
	supervisor *supervise.Supervisor
	readiness  *observe.Readiness
	inventory  *flow.Inventory
	observed   *observe.Metrics
	log        *record
	rough      bool // the test makes tasks fail, or the drain too short: that is not a mistake here
	stop       context.CancelFunc
	done       chan *supervise.Report
}

// record is what was told for the record.
type record struct {
	mu     sync.Mutex
	events []Event
}

func (r *record) add(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// marker is told by a test to learn that what was told before has arrived.
const marker EventType = "marker"

// told waits until everything that has happened is on the record, and returns
// what is there of a type.
func (h *house) told(what EventType) []Event {
	h.t.Helper()
	before := len(h.log.of(marker))
	h.audit(Event{Type: marker})
	waitFor(h.t, func() bool { return len(h.log.of(marker)) > before })
	return h.log.of(what)
}

// of returns what was told of a type.
func (r *record) of(what EventType) (found []Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Type == what {
			found = append(found, e)
		}
	}
	return found
}

// drainTime is how long a drain may take in all: on a busy machine, longer than
// anybody would wait elsewhere.
const drainTime = 30 * time.Second

// logKey is the key that the logs of tests are signed with.
var logKey = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))

// setting changes what a house is made of.
type setting func(*Spec)

func on(j Journal) setting            { return func(s *Spec) { s.Journal = j } }
func with(c func(*Config)) setting    { return func(s *Spec) { c(&s.Config) } }
func shared(s *Spec)                  { s.Shared = true }
func inMemory() Journal               { return journal.NewRAM(journal.RAMSpec{}) }
func quick(c *Config)                 { c.Storage.CheckpointInterval, c.VerifyPause = time.Hour, 0 }
func (h *house) ctx() context.Context { return h.t.Context() }

// open runs a registry. What is not said is as in the default, in memory.
func open(t testing.TB, settings ...setting) *house {
	t.Helper()
	return openFor(t, drainTime, settings...)
}

// openFor runs a registry whose drain has so much time.
func openFor(t testing.TB, drain time.Duration, settings ...setting) *house {
	t.Helper()
	h := &house{t: t, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 128}}, log: &record{}, done: make(chan *supervise.Report, 1)}
	supervisor, err := supervise.New(supervise.Options{Total: drain, Jitter: func(lo, _ time.Duration) time.Duration { return lo }, Stages: []supervise.Stage{{Name: "state"}, {Name: "workers"}, {Name: "intake"}}})
	must(t, err)
	inv, metrics := flow.NewInventory(), observe.NewMetrics(observe.Build{})
	h.supervisor, h.readiness, h.inventory, h.observed = supervisor, observe.NewReadiness(inv, supervisor), inv, metrics
	metrics.Watch(observe.Sources{Inventory: inv, Supervisor: supervisor, Readiness: h.readiness})
	spec := Spec{Config: DefaultConfig(), Key: logKey, Skew: 2 * time.Minute, Metrics: metrics, Readiness: h.readiness}
	quick(&spec.Config)
	spec.Config.Storage.Timeout = time.Minute // a busy machine takes its time
	for _, set := range settings {
		set(&spec)
	}
	if spec.Journal == nil {
		spec.Journal = inMemory()
	}
	h.Registry, err = New(t.Context(), inv, spec)
	must(t, err)
	if c, ok := spec.Journal.(*counting); ok {
		c.opening = c.scanned.Load()
	}
	must(t, h.Add(supervisor, Stages{State: "state", Workers: "workers", Intake: "intake"}, h.log.add))
	h.serve(inv, metrics)
	h.run()
	t.Cleanup(h.close)
	return h
}

// serve puts the routes behind a server.
func (h *house) serve(inv *flow.Inventory, metrics *observe.Metrics) {
	table, err := ingress.NewTable(h.Routes()...)
	must(h.t, err)
	limits := ingress.DefaultLimits()
	limits.Rate, limits.Burst, limits.WorkRate, limits.ConnsPerIP = 1_000_000, 1_000_000, 1_000_000, 4096
	limits.Streams = 4096
	times := ingress.DefaultHTTP()
	times.Deadline, times.FirstByte = time.Minute, time.Minute // a busy machine takes its time
	server, err := ingress.New(ingress.Options{
		Service: "gateway", Name: "http", Table: table, Times: times, Limits: limits,
		Authorise: func(context.Context, ingress.Ask) error { return nil },
		Inventory: inv, Metrics: metrics, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Warm: h.Shelves(),
	})
	must(h.t, err)
	var plain net.ListenConfig
	inner, err := plain.Listen(h.ctx(), "tcp", "127.0.0.1:0")
	must(h.t, err)
	listener := server.Attach(narrow{inner}, ingress.ListenOptions{Name: "http", Addr: inner.Addr().String(), Warm: true})
	h.url = "http://" + listener.Addr().String()
	must(h.t, h.supervisor.Add(supervise.Service{Service: "gateway", Name: "http", Stage: "intake", Serve: listener.Serve, Drain: listener.Drain}))
}

// narrow is a listener whose connections hold little of what was sent and not
// read, so that a client which does not read is noticed soon.
type narrow struct{ net.Listener }

func (n narrow) Accept() (net.Conn, error) {
	conn, err := n.Listener.Accept()
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(1) // the test that needs it would fail without it
	}
	return conn, err
}

func (h *house) run() {
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	go func() {
		report, _ := h.supervisor.Run(ctx)
		h.done <- report
	}()
}

// close drains the registry and looks that nothing was left behind.
func (h *house) close() { h.drained() }

// drained is close for those who want to see the report; nil if it was closed
// before.
func (h *house) drained() *supervise.Report {
	if h.stop == nil {
		return nil
	}
	h.stop()
	h.stop = nil
	report := <-h.done
	if !h.rough && (len(report.Aborted) > 0 || report.Restarts > 0) {
		h.t.Errorf("the drain aborted %v; %d restarts", report.Aborted, report.Restarts)
	}
	h.client.CloseIdleConnections()
	must(h.t, h.Close())
	return report
}

// call sends a request and reads the answer, which must be of this status.
func (h *house) call(method, path string, body, answer any, want int) []byte {
	h.t.Helper()
	status, data := h.try(h.ctx(), method, path, body)
	if status != want {
		h.t.Fatalf("%s %s: %d %s, want %d", method, path, status, data, want)
	}
	if answer != nil {
		if err := json.Unmarshal(data, answer); err != nil {
			h.t.Fatalf("%s %s: %v in %s", method, path, err, data)
		}
	}
	return data
}

// try sends a request, whatever comes of it. A status of zero means that there
// was no answer.
func (h *house) try(ctx context.Context, method, path string, body any) (int, []byte) {
	var in io.Reader
	switch body := body.(type) {
	case nil:
	case []byte:
		in = bytes.NewReader(body)
	case string:
		in = strings.NewReader(body)
	case dressed:
		in = bytes.NewReader(body.data)
	default:
		data, err := json.Marshal(body)
		if err != nil {
			return 0, []byte(err.Error())
		}
		in = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, h.url+path, in)
	if err != nil {
		return 0, []byte(err.Error())
	}
	if dressed, ok := body.(dressed); ok {
		request.Header = dressed.header
		if dressed.chunked {
			request.ContentLength = -1
		}
	}
	response, err := h.client.Do(request)
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

// dressed is a body that is sent in an unusual way.
type dressed struct {
	header  http.Header
	data    []byte
	chunked bool
}

// refused sends a request that must be refused with a code, and returns the
// problem.
func (h *house) refused(method, path string, body any, code string) map[string]any {
	h.t.Helper()
	status, data := h.try(h.ctx(), method, path, body)
	var problem map[string]any
	if err := json.Unmarshal(data, &problem); err != nil || problem["code"] != code {
		h.t.Fatalf("%s %s: %d %s, want %s", method, path, status, data, code)
	}
	if problem["next"] == "" {
		h.t.Errorf("%s %s: %s names no next step", method, path, code)
	}
	return problem
}

// count reads a metric of the registry, summed over the series that have these
// labels, each written name=value.
func (h *house) count(metric string, labels ...string) (sum float64) {
	h.t.Helper()
	families, err := h.observed.Gatherer().Gather()
	must(h.t, err)
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

// turnedAway sends a write that must be refused, and holds the registry to what
// it owes: a typed answer with a next step, one line for the record, one count,
// and nothing done.
func (h *house) turnedAway(action, method, path string, body any, code string) {
	h.t.Helper()
	before, told := h.count("registry_rejected_total", "action="+action, "kind="+code), len(h.told(Refused))
	head, open := h.view.Load().expect(), len(h.docket.list(h.now()))
	h.refused(method, path, body, code)
	if after := h.count("registry_rejected_total", "action="+action, "kind="+code); after != before+1 {
		h.t.Errorf("%s %s: %s was counted %v times", method, path, code, after-before)
	}
	if events := h.told(Refused); len(events) != told+1 || !strings.HasPrefix(events[told].Detail, action+": ") {
		h.t.Errorf("%s %s: told for the record as %+v", method, path, events[told:])
	}
	now := h.view.Load().expect()
	if len(h.docket.list(h.now())) > open || (now == nil) != (head == nil) || now != nil && *now != *head {
		h.t.Errorf("%s %s: refused, and yet something was done", method, path)
	}
}

// signer is somebody with a key.
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
func (h *house) init() client.Initialised {
	h.t.Helper()
	var begun client.Initialised
	h.call("POST", "/registry/init", initRequest(2, alice, bob, carol), &begun, 201)
	return begun
}

// initOne begins a registry of one out of three, which grows in half the time.
func (h *house) initOne() client.Initialised {
	h.t.Helper()
	var begun client.Initialised
	h.call("POST", "/registry/init", initRequest(1, alice, bob, carol), &begun, 201)
	return begun
}

func initRequest(m int, signers ...signer) client.InitRequest {
	request := client.InitRequest{M: m}
	for _, s := range signers {
		request.Keys = append(request.Keys, client.RegistryKey{SignerID: s.id, Public: s.public()})
	}
	return request
}

// name is the operation that puts a name.
func name(id, manifest string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"op":"put","item":{"kind":"name","id":%q,"manifest":"b3:%064x"}}`, id, manifest))
}

func request(ops ...json.RawMessage) client.ProposalRequest {
	return client.ProposalRequest{SchemaVersion: "1.0.0", Ops: ops}
}

// propose, and have it approved by some.
func (h *house) proposed(ops []json.RawMessage, by ...signer) client.Proposed {
	h.t.Helper()
	var p client.Proposed
	h.call("POST", "/registry/proposals", request(ops...), &p, 202)
	for _, s := range by {
		h.call("POST", "/registry/approvals/"+p.ProposalID, s.approve(p), nil, 200)
	}
	return p
}

// change proposes, approves and commits.
func (h *house) change(ops ...json.RawMessage) client.RegistryHead {
	h.t.Helper()
	p := h.proposed(ops, alice, bob)
	var head client.RegistryHead
	h.call("POST", "/registry/commit/"+p.ProposalID, nil, &head, 201)
	return head
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// waitFor waits until something is so; the test's own deadline is the bound.
func waitFor(t testing.TB, so func() bool) {
	t.Helper()
	for !so() {
		if t.Context().Err() != nil || t.Failed() {
			t.Fatal("it never was")
		}
		time.Sleep(time.Millisecond)
	}
}
