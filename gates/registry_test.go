//go:build gates

package gates

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"micronode/b3"
	"micronode/client"
)

// testRegistry is three signers, two of which must approve, and the
// acknowledged versions of their log.
type testRegistry struct {
	// set at construction
	t       *testing.T
	signers [3]ed25519.PrivateKey

	// set when the log begins
	registry b3.Address
	key      string

	itemSerial atomic.Int64 // of the proposed items: all changes are about different ones

	mu                   sync.Mutex
	acknowledgedVersions map[uint64]b3.Address // every commit that was answered with 201
}

func newTestRegistry(t *testing.T) *testRegistry {
	c := &testRegistry{t: t, acknowledgedVersions: map[uint64]b3.Address{}}
	for i := range c.signers {
		c.signers[i] = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{byte(i + 1)}, ed25519.SeedSize))
	}
	return c
}

// initRegistry starts the log.
func (tr *testRegistry) initRegistry(p *process) {
	tr.t.Helper()
	first := client.InitRequest{M: 2}
	for i, key := range tr.signers {
		public := base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey))
		first.Keys = append(first.Keys, client.RegistryKey{SignerID: fmt.Sprint("signer-", i), Public: "ed25519:" + public})
	}
	made, err := p.local().InitRegistry(tr.t.Context(), first)
	if err != nil {
		tr.t.Fatal(err)
	}
	tr.registry, tr.key = made.Registry, made.Key
	tr.acknowledge(made.Head)
}

// acknowledge records what the node has acknowledged, and returns how many
// acknowledgements there are. No version may be acknowledged for two changes.
func (tr *testRegistry) acknowledge(head client.RegistryHead) int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if earlier, twice := tr.acknowledgedVersions[head.Version]; twice {
		tr.t.Errorf("version %d was acknowledged as %s and as %s", head.Version, earlier, head.Hash)
	}
	tr.acknowledgedVersions[head.Version] = head.Hash
	return len(tr.acknowledgedVersions)
}

// acknowledgedCount is how many there are.
func (tr *testRegistry) acknowledgedCount() int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return len(tr.acknowledgedVersions)
}

// registryClient uses one node over HTTP, without retries: only an answer that
// arrived counts.
type registryClient struct {
	registry *testRegistry
	url      string
	token    string
	web      *http.Client

	stopAfter int    // if not zero: after that many acknowledgements,
	onStop    func() // this is called, at once
}

func (tr *testRegistry) newClient(p *process) *registryClient {
	tr.t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 32}
	tr.t.Cleanup(transport.CloseIdleConnections)
	return &registryClient{registry: tr, url: p.http, token: p.token("registry:propose", "registry:approve", "registry:commit"),
		web: &http.Client{Transport: transport, Timeout: 20 * time.Second}}
}

// post sends a document and reads the answer, which must have this status.
func (c *registryClient) post(ctx context.Context, path string, body, answer any, want int) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	got, err := c.web.Do(r)
	if err != nil {
		return err
	}
	defer got.Body.Close()
	text, err = io.ReadAll(got.Body)
	if err != nil {
		return err
	}
	if got.StatusCode != want {
		return fmt.Errorf("%s: %s %s", path, got.Status, text)
	}
	return json.Unmarshal(text, answer)
}

// proposeAndApprove proposes a change of an item of its own and has two signers
// approve it.
func (c *registryClient) proposeAndApprove(ctx context.Context) (id string, err error) {
	n := c.registry.itemSerial.Add(1)
	op := fmt.Sprintf(`{"op":"put","item":{"kind":"name","id":"name-%d","manifest":"b3:%064x"}}`, n, n)
	var proposed client.Proposed
	if err := c.post(ctx, "/registry/proposals", client.ProposalRequest{SchemaVersion: "1.0.0", Ops: []json.RawMessage{json.RawMessage(op)}}, &proposed, http.StatusAccepted); err != nil {
		return "", err
	}
	for i := range 2 {
		who := (int(n) + i) % len(c.registry.signers)
		approval := map[string]any{"signer_id": fmt.Sprint("signer-", who), "algo": "ed25519",
			"sig": ed25519.Sign(c.registry.signers[who], proposed.SignThis), "signed_at": time.Now().UTC().Format("2006-01-02T15:04:05.000Z")}
		if err := c.post(ctx, "/registry/approvals/"+proposed.ProposalID, approval, &client.Approved{}, http.StatusOK); err != nil {
			return "", err
		}
	}
	return proposed.ProposalID, nil
}

// commit commits a proposal, and records the acknowledgement.
func (c *registryClient) commit(ctx context.Context, id string) (took time.Duration, err error) {
	var head client.RegistryHead
	from := time.Now()
	if err := c.post(ctx, "/registry/commit/"+id, struct{}{}, &head, http.StatusCreated); err != nil {
		return 0, err
	}
	took = time.Since(from)
	if c.registry.acknowledge(head) == c.stopAfter {
		c.onStop()
	}
	return took, nil
}

// commitUntilFailure makes versions from several callers until one of them
// fails, which it does when the node ends, or until ctx ends.
func (c *registryClient) commitUntilFailure(ctx context.Context, callers int) *sync.WaitGroup {
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for ctx.Err() == nil {
				id, err := c.proposeAndApprove(ctx)
				if err == nil {
					_, err = c.commit(ctx, id)
				}
				if err != nil {
					return
				}
			}
		})
	}
	return &group
}

// verifyOutput is what `registry verify --json` prints.
type verifyOutput struct {
	OK      bool   `json:"ok"`
	Version uint64 `json:"version"`
}

// verify verifies the folder of a node that does not run, which must succeed.
func (tr *testRegistry) verify(folder string) verifyOutput {
	tr.t.Helper()
	out, err := exec.Command(binary, "registry", "verify", folder, "--registry", tr.registry.String(), "--log-key", tr.key, "--json").CombinedOutput()
	var v verifyOutput
	if err != nil || json.Unmarshal(out, &v) != nil || !v.OK {
		tr.t.Fatalf("verifying the folder: %v\n%s", err, out)
	}
	return v
}

// expectVersions reads every version that was acknowledged from one on. It must
// exist, and be the one that was acknowledged. The last is the head, and so
// complete.
func (tr *testRegistry) expectVersions(p *process, from uint64) (head uint64) {
	tr.t.Helper()
	local := p.local()
	defer local.Close()
	last, err := local.RegistryHead(tr.t.Context())
	if err != nil {
		tr.t.Fatal(err)
	}
	for version, hash := range tr.acknowledgedVersions {
		if version < from {
			continue
		}
		kept, err := local.RegistryVersion(tr.t.Context(), version, false)
		if err != nil || kept.Hash != hash {
			tr.t.Errorf("version %d was acknowledged as %s; now it is %s, %v", version, hash, kept.Hash, err)
		}
	}
	return last.Version
}

// frequentCheckpoints makes the log save checkpoints all the time, so that a
// kill may hit one, too.
var frequentCheckpoints = append([]string{"MICRO_REGISTRY__STORAGE__CHECKPOINT_VERSIONS=16", "MICRO_REGISTRY__STORAGE__CHECKPOINT_INTERVAL=250ms"}, unlimited...)

// A node that is killed in the middle of commits, again and again, loses none
// that it acknowledged, and serves nothing incomplete: what is on the disk is
// verified from the first version on, by a process of its own, before the node
// opens it again.
func TestRegistryKilled(t *testing.T) {
	logs, kills := 1, 10
	if isLong() {
		logs, kills = 10, 20
	}
	for range logs {
		killDuringCommits(t, kills)
	}
}

// killDuringCommits kills the nodes of one log.
func killDuringCommits(t *testing.T, rounds int) {
	t.Helper()
	folder, c := t.TempDir(), newTestRegistry(t)
	var from, unanswered uint64
	for round := range rounds {
		p := startWith(t, nil, []string{"--persist", folder}, frequentCheckpoints...)
		if round == 0 {
			c.initRegistry(p)
		}
		from = c.expectVersions(p, from) + 1
		k := c.newClient(p)
		k.stopAfter, k.onStop = c.acknowledgedCount()+5+rand.IntN(60), func() {
			// as soon as something is acknowledged, or in the middle of later
			// work, such as a checkpoint
			time.Sleep(rand.N([]time.Duration{1, 2 * time.Millisecond, 400 * time.Millisecond}[round%3]))
			p.kill()
		}
		group := k.commitUntilFailure(t.Context(), 16)
		p.awaitEnd()
		group.Wait()
		v := c.verify(folder)
		if v.Version+1 < uint64(c.acknowledgedCount()) {
			t.Errorf("round %d: %d versions were acknowledged, and the log ends at version %d", round, c.acknowledgedCount(), v.Version)
		}
		unanswered = v.Version + 1 - uint64(c.acknowledgedCount())
	}
	p := startWith(t, nil, []string{"--persist", folder}, frequentCheckpoints...)
	head := c.expectVersions(p, 0)
	p.stop(syscall.SIGTERM)
	if v := c.verify(folder); v.Version != head {
		t.Errorf("the node showed version %d at last, and its folder ends at version %d", head, v.Version)
	}
	report(t, "registry: killed during commits", "no acknowledged version lost", fmt.Sprintf("%d kept over %d kills", c.acknowledgedCount(), rounds))
	t.Logf("%d kills: %d versions acknowledged, and %d more that were on the disk before they could be answered", rounds, c.acknowledgedCount(), unanswered)
}

// awaitEnd waits for a process that is being killed.
func (p *process) awaitEnd() {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(30 * time.Second):
		p.t.Fatalf("nobody has killed it:\n%s", p.stderr)
	}
}

// awaitCondition waits for something that another process does.
func awaitCondition(t *testing.T, p *process, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s:\n%s", what, p.stderr)
		}
	}
}

// A node that is stopped in the middle of commits completes those that it has
// begun, and what it acknowledged is in the log.
func TestRegistryDrained(t *testing.T) {
	rounds := 3
	if isLong() {
		rounds = 20
	}
	folder, c := t.TempDir(), newTestRegistry(t)
	for round := range rounds {
		p := startWith(t, nil, []string{"--persist", folder}, frequentCheckpoints...)
		if round == 0 {
			c.initRegistry(p)
		}
		enough := c.acknowledgedCount() + 50
		group := c.newClient(p).commitUntilFailure(t.Context(), 16)
		awaitCondition(t, p, "commits under load", func() bool { return c.acknowledgedCount() >= enough })
		took := p.stop(syscall.SIGTERM)
		group.Wait()
		if text := p.stderr.String(); !isCleanStop(text) {
			t.Errorf("round %d: the report is not that of a clean drain:\n%s", round, text)
		}
		v := c.verify(folder)
		t.Logf("drained in %s: %d versions acknowledged, %d in the log", took.Round(time.Millisecond), c.acknowledgedCount(), v.Version+1)
		if v.Version+1 < uint64(c.acknowledgedCount()) {
			t.Errorf("round %d: %d versions were acknowledged, and the log ends at version %d", round, c.acknowledgedCount(), v.Version)
		}
	}
	p := startWith(t, nil, []string{"--persist", folder}, frequentCheckpoints...)
	c.expectVersions(p, 0)
	p.stop(syscall.SIGTERM)
}

// Two hundred subscribers that never read do not delay commits, nor the one
// subscriber that reads. They are closed in the end.
func TestRegistryStalledSubscribers(t *testing.T) {
	subscribers, commits := 200, 1500
	if isLong() {
		commits = 20_000
	}
	p := startWith(t, nil, []string{"--persist", t.TempDir()}, append(unlimited, "MICRO_LIMITS__CONNS_PER_IP=1000")...)
	c := newTestRegistry(t)
	c.initRegistry(p)
	k := c.newClient(p)
	retryMeasurement(t, func() error {
		alone, err := k.commitMany(600)
		if err != nil {
			return err
		}
		heard := c.followStream(p)
		openStalledSubscribers(t, p, subscribers)
		before := p.rss()
		watched, err := k.commitMany(commits)
		if err != nil {
			return err
		}
		after := p.rss()
		last := uint64(c.acknowledgedCount() - 1)
		awaitCondition(t, p, "the subscriber that reads", func() bool { return heard.Load() >= last })
		t.Logf("commit: p50 %s and p99 %s alone; p50 %s and p99 %s beside %d subscribers that do not read; rss %d MiB, then %d MiB",
			percentile(alone, 0.5), percentile(alone, 0.99), percentile(watched, 0.5), percentile(watched, 0.99), subscribers, before>>20, after>>20)
		report(t, fmt.Sprintf("registry: %d subscribers that do not read", subscribers), "commits go on: p50 ≤ 5 × alone",
			fmt.Sprintf("p50 %s → %s", rounded(percentile(alone, 0.5)), rounded(percentile(watched, 0.5))))
		if after > before+64<<20 {
			return fmt.Errorf("memory grows: %d MiB, then %d MiB", before>>20, after>>20)
		}
		if percentile(watched, 0.5) > 5*percentile(alone, 0.5) {
			return slowErrorf("a commit took %s at p50 beside them, and %s alone", percentile(watched, 0.5), percentile(alone, 0.5))
		}
		awaitCondition(t, p, "those who do not read to be let go", func() bool {
			return p.metric("registry_subscribers", "") <= 1 || p.metric("bus_lagged_total", `consumer="stream"`) > 0
		})
		return nil
	})
	t.Logf("%v subscribers are left; %v events were not told to those who were too slow", p.metric("registry_subscribers", ""), p.metric("bus_lagged_total", `consumer="stream"`))
	p.stop(syscall.SIGTERM)
}

// commitMany makes n versions from several callers, each of which must succeed,
// and returns how long each commit took.
func (c *registryClient) commitMany(n int) (all []time.Duration, err error) {
	var mu sync.Mutex
	var left atomic.Int64
	left.Store(int64(n))
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for left.Add(-1) >= 0 {
				id, failed := c.proposeAndApprove(c.registry.t.Context())
				var took time.Duration
				if failed == nil {
					took, failed = c.commit(c.registry.t.Context(), id)
				}
				mu.Lock()
				all = append(all, took)
				if failed != nil {
					err = failed
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return all, err
}

// followStream follows the log and stores the last version that it has
// received.
func (tr *testRegistry) followStream(p *process) *atomic.Uint64 {
	tr.t.Helper()
	ctx, cancel := context.WithCancel(tr.t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.http+"/registry/stream", nil)
	if err != nil {
		tr.t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil || answer.StatusCode != http.StatusOK {
		tr.t.Fatalf("following the log: %v, %v", answer, err)
	}
	var heard atomic.Uint64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
			var version uint64
			if _, err := fmt.Sscanf(lines.Text(), "id: %d", &version); err == nil {
				heard.Store(version)
			}
		}
	}()
	tr.t.Cleanup(func() { cancel(); answer.Body.Close(); <-done })
	return &heard
}

// openStalledSubscribers opens connections that request the whole stream and
// never read a byte of it. Both ends buffer little of it: the kernel sizes the
// buffer of the other end by our segments, which on loopback would be huge.
func openStalledSubscribers(t *testing.T, p *process, n int) {
	t.Helper()
	small := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var buffer, segment error
		failed := raw.Control(func(fd uintptr) {
			buffer = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 1)
			segment = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, 536)
		})
		return errors.Join(failed, buffer, segment)
	}}
	host := strings.TrimPrefix(p.http, "http://")
	for range n {
		conn, err := small.DialContext(t.Context(), "tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := fmt.Fprintf(conn, "GET /registry/stream HTTP/1.1\r\nHost: %s\r\nLast-Event-ID: 0\r\n\r\n", host); err != nil {
			t.Fatal(err)
		}
	}
	awaitCondition(t, p, "the subscribers", func() bool { return p.metric("registry_subscribers", "") >= float64(n) })
}
