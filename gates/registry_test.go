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

// council is three signers, two of whom must approve, and what they were told
// about the log that they govern.
type council struct {
	// set at construction
	t       *testing.T
	signers [3]ed25519.PrivateKey

	// set when the log begins
	registry b3.Address
	key      string

	items atomic.Int64 // that were proposed: no two changes are about the same one

	mu   sync.Mutex
	told map[uint64]b3.Address // every commit that was answered with 201
}

func newCouncil(t *testing.T) *council {
	c := &council{t: t, told: map[uint64]b3.Address{}}
	for i := range c.signers {
		c.signers[i] = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{byte(i + 1)}, ed25519.SeedSize))
	}
	return c
}

// begin starts the log.
func (c *council) begin(p *process) {
	c.t.Helper()
	first := client.InitRequest{M: 2}
	for i, key := range c.signers {
		public := base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey))
		first.Keys = append(first.Keys, client.RegistryKey{SignerID: fmt.Sprint("signer-", i), Public: "ed25519:" + public})
	}
	made, err := p.local().InitRegistry(c.t.Context(), first)
	if err != nil {
		c.t.Fatal(err)
	}
	c.registry, c.key = made.Registry, made.Key
	c.acknowledge(made.Head)
}

// acknowledge notes what the node has promised, and tells how many promises
// there are. No version may be promised to two changes.
func (c *council) acknowledge(head client.RegistryHead) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if earlier, twice := c.told[head.Version]; twice {
		c.t.Errorf("version %d was acknowledged as %s and as %s", head.Version, earlier, head.Hash)
	}
	c.told[head.Version] = head.Hash
	return len(c.told)
}

// acknowledged is how many there are.
func (c *council) acknowledged() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.told)
}

// clerk asks one node over HTTP, without repeating anything: only an answer
// that came counts.
type clerk struct {
	council *council
	url     string
	token   string
	web     *http.Client

	enough int    // if not zero: after so many promises,
	then   func() // this is done, at once
}

func (c *council) clerk(p *process) *clerk {
	c.t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 32}
	c.t.Cleanup(transport.CloseIdleConnections)
	return &clerk{council: c, url: p.http, token: p.token("registry:propose", "registry:approve", "registry:commit"),
		web: &http.Client{Transport: transport, Timeout: 20 * time.Second}}
}

// post sends a document and reads the answer, which must have this status.
func (k *clerk) post(ctx context.Context, path string, body, answer any, want int) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, k.url+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+k.token)
	got, err := k.web.Do(r)
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

// approved proposes a change of an item of its own and has two sign it.
func (k *clerk) approved(ctx context.Context) (id string, err error) {
	n := k.council.items.Add(1)
	op := fmt.Sprintf(`{"op":"put","item":{"kind":"name","id":"name-%d","manifest":"b3:%064x"}}`, n, n)
	var proposed client.Proposed
	if err := k.post(ctx, "/registry/proposals", client.ProposalRequest{SchemaVersion: "1.0.0", Ops: []json.RawMessage{json.RawMessage(op)}}, &proposed, http.StatusAccepted); err != nil {
		return "", err
	}
	for i := range 2 {
		who := (int(n) + i) % len(k.council.signers)
		approval := map[string]any{"signer_id": fmt.Sprint("signer-", who), "algo": "ed25519",
			"sig": ed25519.Sign(k.council.signers[who], proposed.SignThis), "signed_at": time.Now().UTC().Format("2006-01-02T15:04:05.000Z")}
		if err := k.post(ctx, "/registry/approvals/"+proposed.ProposalID, approval, &client.Approved{}, http.StatusOK); err != nil {
			return "", err
		}
	}
	return proposed.ProposalID, nil
}

// commit makes a version of a proposal, and notes what was promised.
func (k *clerk) commit(ctx context.Context, id string) (took time.Duration, err error) {
	var head client.RegistryHead
	from := time.Now()
	if err := k.post(ctx, "/registry/commit/"+id, struct{}{}, &head, http.StatusCreated); err != nil {
		return 0, err
	}
	took = time.Since(from)
	if k.council.acknowledge(head) == k.enough {
		k.then()
	}
	return took, nil
}

// changes makes versions from several callers until one of them fails, which it
// does when the node ends, or until ctx ends.
func (k *clerk) changes(ctx context.Context, callers int) *sync.WaitGroup {
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for ctx.Err() == nil {
				id, err := k.approved(ctx)
				if err == nil {
					_, err = k.commit(ctx, id)
				}
				if err != nil {
					return
				}
			}
		})
	}
	return &group
}

// verdict is what `registry verify --json` prints.
type verdict struct {
	OK      bool   `json:"ok"`
	Version uint64 `json:"version"`
}

// verify has the folder of a node that does not run verified, which must hold.
func (c *council) verify(folder string) verdict {
	c.t.Helper()
	out, err := exec.Command(binary, "registry", "verify", folder, "--registry", c.registry.String(), "--log-key", c.key, "--json").CombinedOutput()
	var v verdict
	if err != nil || json.Unmarshal(out, &v) != nil || !v.OK {
		c.t.Fatalf("verifying the folder: %v\n%s", err, out)
	}
	return v
}

// wantKept asks for every version that was acknowledged from one on. It must be
// there, and be the one that was promised. The last is the head, and so whole.
func (c *council) wantKept(p *process, from uint64) (head uint64) {
	c.t.Helper()
	local := p.local()
	defer local.Close()
	last, err := local.RegistryHead(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	for version, hash := range c.told {
		if version < from {
			continue
		}
		kept, err := local.RegistryVersion(c.t.Context(), version, false)
		if err != nil || kept.Hash != hash {
			c.t.Errorf("version %d was acknowledged as %s; now it is %s, %v", version, hash, kept.Hash, err)
		}
	}
	return last.Version
}

// busyLog has the log keep checkpoints all the time, so that whatever ends the
// node may meet it there, too.
var busyLog = append([]string{"MICRO_REGISTRY__STORAGE__CHECKPOINT_VERSIONS=16", "MICRO_REGISTRY__STORAGE__CHECKPOINT_INTERVAL=250ms"}, unlimited...)

// A node that is killed in the middle of commits, again and again, loses none
// that it acknowledged, and shows nothing that is not whole: what is on the disk
// is verified from the first version on, by a process of its own, before the
// node sees it again.
func TestRegistryKilled(t *testing.T) {
	logs, kills := 1, 10
	if long() {
		logs, kills = 10, 20
	}
	for range logs {
		registryKilled(t, kills)
	}
}

// registryKilled kills the nodes of one log.
func registryKilled(t *testing.T, rounds int) {
	t.Helper()
	folder, c := t.TempDir(), newCouncil(t)
	var from, unanswered uint64
	for round := range rounds {
		p := startWith(t, nil, []string{"--persist", folder}, busyLog...)
		if round == 0 {
			c.begin(p)
		}
		from = c.wantKept(p, from) + 1
		k := c.clerk(p)
		k.enough, k.then = c.acknowledged()+5+rand.IntN(60), func() {
			// as soon as something is promised, or in the middle of whatever is
			// done later, such as a checkpoint
			time.Sleep(rand.N([]time.Duration{1, 2 * time.Millisecond, 400 * time.Millisecond}[round%3]))
			p.kill()
		}
		group := k.changes(t.Context(), 16)
		p.awaitEnd()
		group.Wait()
		v := c.verify(folder)
		if v.Version+1 < uint64(c.acknowledged()) {
			t.Errorf("round %d: %d versions were acknowledged, and the log ends at version %d", round, c.acknowledged(), v.Version)
		}
		unanswered = v.Version + 1 - uint64(c.acknowledged())
	}
	p := startWith(t, nil, []string{"--persist", folder}, busyLog...)
	head := c.wantKept(p, 0)
	p.stop(syscall.SIGTERM)
	if v := c.verify(folder); v.Version != head {
		t.Errorf("the node showed version %d at last, and its folder ends at version %d", head, v.Version)
	}
	t.Logf("%d kills: %d versions acknowledged, and %d more that were on the disk before they could be answered", rounds, c.acknowledged(), unanswered)
}

// awaitEnd waits for a process that somebody kills.
func (p *process) awaitEnd() {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(30 * time.Second):
		p.t.Fatalf("nobody has killed it:\n%s", p.stderr)
	}
}

// awaitSo waits for something that another process does.
func awaitSo(t *testing.T, p *process, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s:\n%s", what, p.stderr)
		}
	}
}

// A node that is told to stop in the middle of commits answers those that it has
// begun with, and what it answered is in the log.
func TestRegistryDrained(t *testing.T) {
	rounds := 3
	if long() {
		rounds = 20
	}
	folder, c := t.TempDir(), newCouncil(t)
	for round := range rounds {
		p := startWith(t, nil, []string{"--persist", folder}, busyLog...)
		if round == 0 {
			c.begin(p)
		}
		enough := c.acknowledged() + 50
		group := c.clerk(p).changes(t.Context(), 16)
		awaitSo(t, p, "commits under load", func() bool { return c.acknowledged() >= enough })
		took := p.stop(syscall.SIGTERM)
		group.Wait()
		if text := p.stderr.String(); !strings.Contains(text, "drained in") || strings.Contains(text, "left running  ") {
			t.Errorf("round %d: the report is not that of a clean drain:\n%s", round, text)
		}
		v := c.verify(folder)
		t.Logf("drained in %s: %d versions acknowledged, %d in the log", took.Round(time.Millisecond), c.acknowledged(), v.Version+1)
		if v.Version+1 < uint64(c.acknowledged()) {
			t.Errorf("round %d: %d versions were acknowledged, and the log ends at version %d", round, c.acknowledged(), v.Version)
		}
	}
	p := startWith(t, nil, []string{"--persist", folder}, busyLog...)
	c.wantKept(p, 0)
	p.stop(syscall.SIGTERM)
}

// Two hundred subscribers that never read do not hold up commits, nor the one
// subscriber that reads. They are let go in the end.
func TestRegistryStalledSubscribers(t *testing.T) {
	subscribers, commits := 200, 1500
	if long() {
		commits = 20_000
	}
	p := startWith(t, nil, []string{"--persist", t.TempDir()}, append(unlimited, "MICRO_LIMITS__CONNS_PER_IP=1000")...)
	c := newCouncil(t)
	c.begin(p)
	k := c.clerk(p)
	measured(t, func() error {
		alone, err := k.commits(600)
		if err != nil {
			return err
		}
		heard := c.listen(p)
		stall(t, p, subscribers)
		before := p.rss()
		watched, err := k.commits(commits)
		if err != nil {
			return err
		}
		after := p.rss()
		last := uint64(c.acknowledged() - 1)
		awaitSo(t, p, "the subscriber that reads", func() bool { return heard.Load() >= last })
		t.Logf("commit: p50 %s and p99 %s alone; p50 %s and p99 %s beside %d subscribers that do not read; rss %d MiB, then %d MiB",
			percentile(alone, 0.5), percentile(alone, 0.99), percentile(watched, 0.5), percentile(watched, 0.99), subscribers, before>>20, after>>20)
		if after > before+64<<20 {
			return fmt.Errorf("memory grows: %d MiB, then %d MiB", before>>20, after>>20)
		}
		if percentile(watched, 0.5) > 5*percentile(alone, 0.5)+5*time.Millisecond {
			return tooSlow("a commit took %s at p50 beside them, and %s alone", percentile(watched, 0.5), percentile(alone, 0.5))
		}
		awaitSo(t, p, "those who do not read to be let go", func() bool {
			return p.metric("registry_subscribers", "") <= 1 || p.metric("bus_lagged_total", `consumer="stream"`) > 0
		})
		return nil
	})
	t.Logf("%v subscribers are left; %v events were not told to those who were too slow", p.metric("registry_subscribers", ""), p.metric("bus_lagged_total", `consumer="stream"`))
	p.stop(syscall.SIGTERM)
}

// commits makes so many versions from several callers, each of which must be
// made, and tells how long each commit took.
func (k *clerk) commits(n int) (all []time.Duration, err error) {
	var mu sync.Mutex
	var left atomic.Int64
	left.Store(int64(n))
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for left.Add(-1) >= 0 {
				id, failed := k.approved(k.council.t.Context())
				var took time.Duration
				if failed == nil {
					took, failed = k.commit(k.council.t.Context(), id)
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

// listen follows the log and tells the last version that it has heard of.
func (c *council) listen(p *process) *atomic.Uint64 {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.http+"/registry/stream", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil || answer.StatusCode != http.StatusOK {
		c.t.Fatalf("following the log: %v, %v", answer, err)
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
	c.t.Cleanup(func() { cancel(); answer.Body.Close(); <-done })
	return &heard
}

// stall opens connections that ask for the whole stream and never read a byte of
// it. Both ends hold little of it: the kernel gives the other end a buffer by
// the size of our segments, which on loopback would be huge.
func stall(t *testing.T, p *process, n int) {
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
	awaitSo(t, p, "the subscribers", func() bool { return p.metric("registry_subscribers", "") >= float64(n) })
}
