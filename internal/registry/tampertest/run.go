package tampertest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/ingress"
	"micronode/internal/observe"
	"micronode/internal/registry"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/tree"
	"micronode/internal/supervise"
	"micronode/internal/testkit"
)

// Storage is an empty storage for a log.
type Storage struct {
	Journal journal.Journal

	// Reopen closes the journal and opens it again, where that makes a
	// difference; nil where it makes none.
	Reopen func() journal.Journal

	// Verify verifies the log offline, if that is done in another way than by
	// reading the journal.
	Verify func(ctx context.Context, trust registry.Trust) (registry.Report, error)
}

// Run makes every change to logs in storages of one kind.
func Run(t *testing.T, fresh func(*testing.T) Storage) {
	for _, of := range []struct {
		name    string
		log     *testLog
		regimes []logKind
		pruned  bool
	}{
		{"whole", short(), []logKind{wholeAndPruned}, false},
		{"tiled", long(), []logKind{longWhole}, false},
		{"pruned", long().clonePruned(), []logKind{wholeAndPruned, prunedOnly}, true},
	} {
		t.Run(of.name, func(t *testing.T) {
			t.Run("nothing is changed", func(t *testing.T) { checkUntouched(t, fresh(t), of.log.clone()) })
			for _, d := range tamperings {
				if slices.Contains(of.regimes, d.kind) {
					t.Run(d.what, func(t *testing.T) { checkTampered(t, fresh(t), of.log.clone(), d, of.pruned) })
				}
			}
		})
	}
}

// store writes a log to a storage and opens it as a node would find it.
func store(t *testing.T, s Storage, l *testLog) journal.Journal {
	t.Helper()
	l.write(t, s.Journal)
	j := s.Journal
	if s.Reopen != nil {
		j = s.Reopen()
	}
	if l.isAltered() {
		return alteredJournal{j, l.end(), l.claimedPruned}
	}
	return j
}

// trust returns what an independent verifier knows of the log.
func (l *testLog) trust() registry.Trust {
	id := l.registry
	signer, err := tree.NewSigner(logKey, tree.Origin(id))
	panicOn(err)
	return registry.Trust{Registry: &id, Key: signer.VerifierKey()}
}

// checkUntouched checks that an unchanged log verifies.
func checkUntouched(t *testing.T, s Storage, l *testLog) {
	j := store(t, s, l)
	report, err := verify(t, s, j, l)
	if err != nil || report.Head != l.record(versions-1).Head() || report.Signed != uint64(l.position(newest)) {
		t.Fatalf("verified as %+v, %v", report, err)
	}
	n, err := open(t, j)
	must(t, err)
	n.waitFor("ok")
	if v := n.readiness.Evaluate(); !v.Whole() {
		t.Errorf("the verdict is %+v", v)
	}
	for version := report.First; version <= report.Head.Version; version += 9 {
		for _, path := range paths {
			body, err := n.get(path, version)
			if err != nil && fault.KindOf(err) != fault.Expired || err == nil && !l.original.isTruthful(path, version, body) {
				t.Errorf("%s of version %d: %s, %v", path, version, body, err)
			}
		}
	}
}

// checkTampered checks that a change is detected offline and by the verifier,
// and that the changed versions are not served.
func checkTampered(t *testing.T, s Storage, l *testLog, d tampering, pruned bool) {
	d.change(l)
	j := store(t, s, l)
	if report, err := verify(t, s, j, l); fault.KindOf(err) != fault.IntegrityFail {
		t.Errorf("from outside it is %+v, %v", report, err)
	}
	n, err := open(t, j)
	if err != nil {
		if kind := fault.KindOf(err); kind != fault.IntegrityFail && kind != fault.InvalidSig {
			t.Errorf("opening it fails with %v", err)
		}
		return // a node that does not start serves nothing
	}
	served := map[string][]uint64{}
	for _, number := range d.reads {
		version := uint64(l.position(number))
		for _, path := range paths {
			if body, err := n.get(path, version); err == nil && !l.original.isTruthful(path, version, body) {
				served[path] = append(served[path], version)
			}
		}
	}
	if len(served) > 0 {
		t.Errorf("served as if nothing were wrong: %v", served)
	}
	n.waitFor("damaged")
	// The reader of the events runs beside the verifier, and may be behind it.
	testkit.WaitFor(t, "an event says that the log is damaged", n.hasDamagedEvent)
	v := n.readiness.Evaluate()
	if spare := d.repairable && !pruned; v.WriteReady != spare || !v.Ready || len(v.Reasons) == 0 {
		t.Errorf("the verdict is %+v", v)
	}
}

func verify(t *testing.T, s Storage, j journal.Journal, l *testLog) (registry.Report, error) {
	if s.Verify != nil && !l.isAltered() {
		return s.Verify(t.Context(), l.trust())
	}
	return registry.VerifyLog(t.Context(), j, l.trust(), nil)
}

// node is a registry that runs on a log.
type node struct {
	*registry.Registry
	t         *testing.T
	readiness *observe.Readiness
	metrics   *observe.Metrics
	stop      func() // drains it, once

	mu     sync.Mutex
	events []registry.Event
}

// open runs a registry on a log, with settings that differ from ours.
func open(t *testing.T, j journal.Journal, differ ...func(*registry.Config)) (*node, error) {
	t.Helper()
	supervisor, err := supervise.New(supervise.Options{DrainTimeout: 30 * time.Second, Stages: []supervise.Stage{{Name: "all"}}})
	must(t, err)
	inv := flow.NewInventory()
	n := &node{t: t, metrics: observe.NewMetrics(observe.Build{}), readiness: observe.NewReadiness(inv, supervisor)}
	config := registry.DefaultConfig()
	config.VerifyShare, config.VerifyPause = 100, 0
	config.Storage.CheckpointInterval, config.Storage.Timeout = time.Hour, time.Minute
	for _, change := range differ {
		change(&config)
	}
	n.Registry, err = registry.New(t.Context(), inv, registry.Spec{Config: config, Key: logKey, Skew: time.Minute, Journal: j, Metrics: n.metrics, Readiness: n.readiness})
	if err != nil {
		return nil, err
	}
	must(t, n.Add(supervisor, registry.Stages{State: "all", Workers: "all", Intake: "all"}, n.addEvent))
	ctx, stop := context.WithCancel(context.Background())
	var runs sync.WaitGroup
	runs.Go(func() { _, _ = supervisor.Run(ctx) }) //lockblock:allow this package is a test; it is waited for when the node stops
	n.stop = sync.OnceFunc(func() {
		stop()
		runs.Wait()
		_ = n.Close() // the storage belongs to the test
	})
	t.Cleanup(n.stop)
	return n, nil
}

func (n *node) addEvent(e registry.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, e)
}

func (n *node) hasDamagedEvent() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.ContainsFunc(n.events, func(e registry.Event) bool { return e.Type == registry.EventDamaged })
}

// waitFor waits for a round of the verifier with an outcome.
func (n *node) waitFor(outcome string) {
	n.t.Helper()
	for rounds := map[string]float64{}; rounds["ok"]+rounds["damaged"] == 0; time.Sleep(5 * time.Millisecond) {
		families, err := n.metrics.Gatherer().Gather()
		must(n.t, err)
		for _, family := range families {
			for _, series := range family.GetMetric() {
				if family.GetName() != "registry_verify_rounds_total" {
					continue
				}
				for _, label := range series.GetLabel() {
					if label.GetName() == "outcome" {
						rounds[label.GetValue()] = series.GetCounter().GetValue()
					}
				}
			}
		}
		if rounds["ok"]+rounds["damaged"] > 0 && rounds[outcome] == 0 {
			n.t.Errorf("the verifier found it %v, want %s", rounds, outcome)
			return
		}
		if n.t.Context().Err() != nil {
			n.t.Fatal("the verifier never came round")
		}
	}
}

// Ways to read a version.
const (
	pathNoItems = "/registry/{version}?items=false"
	pathVersion = "/registry/{version}"
	pathBundle  = "/registry/bundle/{version}"
	pathEntries = "/registry/log/tile/{path...}"
)

var paths = []string{pathNoItems, pathVersion, pathBundle, pathEntries}

// get requests a version as the gateway does.
func (n *node) get(path string, version uint64) ([]byte, error) {
	pattern, query, _ := strings.Cut(path, "?")
	request := httptest.NewRequest(http.MethodGet, "/registry/read?"+query, nil)
	request.SetPathValue("version", strconv.FormatUint(version, 10))
	head, _ := n.Head()
	tile := version / tree.TileWidth
	at := fmt.Sprintf("entries/%03d", tile)
	if width := head.Version + 1 - tile*tree.TileWidth; width < tree.TileWidth {
		at += fmt.Sprintf(".p/%d", width)
	}
	request.SetPathValue("path", at)
	answer := httptest.NewRecorder()
	err := n.route(pattern).Handler(answer, request.WithContext(n.t.Context()))
	return answer.Body.Bytes(), err
}

// isTruthful reports whether an answer is what was committed.
func (l *testLog) isTruthful(path string, version uint64, body []byte) bool {
	want := l.records[version]
	if path == pathEntries {
		headers, err := tree.SplitEntries(body)
		for i := range headers {
			err = errors.Join(err, same(headers[i], l.records[version/tree.TileWidth*tree.TileWidth+uint64(i)].Header))
		}
		return err == nil
	}
	type parts struct{ Header, Payload, Preconditions []byte }
	var got struct {
		parts
		Record *parts
		Items  []struct{ ID, Manifest string }
	}
	if json.Unmarshal(body, &got) != nil {
		return false
	}
	if got.Record != nil {
		got.parts = *got.Record
	}
	if path == pathBundle {
		_, err := registry.VerifyBundle(body, l.trust())
		return err == nil && same(got.Payload, want.Payload) == nil && same(got.Header, want.Header) == nil
	}
	for _, item := range got.Items {
		if n, err := strconv.Atoi(strings.TrimPrefix(item.ID, "n")); err == nil && item.Manifest != fmt.Sprintf("b3:%064x", n) {
			return false
		}
	}
	return errors.Join(same(got.Header, want.Header), same(got.Payload, want.Payload), same(got.Preconditions, want.Preconditions)) == nil &&
		(path == pathNoItems) == (len(got.Items) == 0)
}

func same(got, want []byte) error {
	if !bytes.Equal(got, want) {
		return errors.New("it is another")
	}
	return nil
}

func (n *node) route(pattern string) ingress.Route {
	for _, r := range n.Routes() {
		if r.Pattern == pattern {
			return r
		}
	}
	n.t.Fatalf("there is no route %s", pattern)
	return ingress.Route{}
}

func b64(b []byte) []byte { return []byte(base64.StdEncoding.EncodeToString(b)) }
