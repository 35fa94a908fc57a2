package peers

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"micronode/bench/load"
	"micronode/bench/testbed"
	"micronode/client"
	"micronode/fault"
)

// Registry is our own node with a registry that requires two of three
// signatures. Its writers are in this process, each with a client and a
// connection of its own.
type Registry struct {
	Server
	node         micronode
	admin        string // where it can be profiled
	token        string
	signers      [3]ed25519.PrivateKey
	writers      []*client.Client
	changeSerial atomic.Int64 // all changes have different content
}

// registryLimits are raised so that a bench reaches none of them.
var registryLimits = append([]string{"MICRO_REGISTRY__MAX_PROPOSALS=65536", "MICRO_LIMITS__CONNS_PER_IP=4096"}, raisedLimits...)

// StartRegistry starts a node that keeps its log in a folder, or in memory if
// there is none, and initialises the log if that is new.
func StartRegistry(ctx context.Context, g *testbed.Testbed, folder string) (*Registry, error) {
	r, err := OpenRegistry(ctx, g, folder)
	if err != nil {
		return nil, err
	}
	token, err := g.RunBounded(ctx, nil, r.node.binary, "token", "mint", "--scope", "admin", "--scope", "registry:propose", "--scope", "registry:approve", "--scope", "registry:commit",
		"--ttl", "2h", "--socket", r.node.socket)
	if err != nil {
		return nil, err
	}
	r.token = strings.TrimSpace(token)
	for i := range r.signers {
		r.signers[i] = ed25519.NewKeyFromSeed(append(make([]byte, ed25519.SeedSize-1), byte(i+1)))
	}
	r.changeSerial.Store(time.Now().UnixNano()) // unlike those of another run on the same log
	g.OnClose(r.closeWriters)
	return r, r.initRegistry(ctx)
}

// OpenRegistry starts a node on a log, and returns when it is ready.
func OpenRegistry(ctx context.Context, g *testbed.Testbed, folder string) (*Registry, error) {
	var arguments []string
	if folder != "" {
		arguments = []string{"--persist", folder}
	}
	node, err := launchMicronode(ctx, g, registryLimits, arguments...)
	if err != nil {
		return nil, err
	}
	r := &Registry{node: node, Server: Server{Process: node.process}}
	if err := node.awaitReady(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// initRegistry initialises the log, unless it exists.
func (r *Registry) initRegistry(ctx context.Context) error {
	if err := r.readAddresses(ctx); err != nil {
		return err
	}
	writer, err := r.writer(0)
	if err != nil {
		return err
	}
	if _, err := writer.RegistryHead(ctx); !errors.Is(err, fault.NotFound) {
		return err
	}
	first := client.InitRequest{M: 2}
	for i, key := range r.signers {
		public := base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey))
		first.Keys = append(first.Keys, client.RegistryKey{SignerID: signerName(i), Public: "ed25519:" + public})
	}
	_, err = writer.InitRegistry(ctx, first)
	return err
}

func signerName(i int) string { return fmt.Sprint("signer-", i) }

// readAddresses reads where the node listens.
func (r *Registry) readAddresses(ctx context.Context) error {
	local, err := client.New(client.Options{Socket: r.node.socket})
	if err != nil {
		return err
	}
	defer local.Close()
	status, err := local.Status(ctx)
	r.Address, r.admin = status.Listen.HTTP, status.Listen.Admin
	return err
}

// writer is the client number i.
func (r *Registry) writer(i int) (*client.Client, error) {
	for len(r.writers) <= i {
		one, err := client.New(client.Options{URL: "http://" + r.Address, Token: r.token})
		if err != nil {
			return nil, err
		}
		r.writers = append(r.writers, one)
	}
	return r.writers[i], nil
}

// closeWriters closes the connections of the writers.
func (r *Registry) closeWriters() {
	for _, one := range r.writers {
		one.Close()
	}
	r.writers = nil
}

// Head returns the request for the head, and the response as long as nothing is
// committed.
func (r *Registry) Head(ctx context.Context) (load.Exchange, error) {
	raw, err := fetchBody(ctx, "http://"+r.Address+"/registry/head")
	return load.Exchange{Request: request("GET", "/registry/head", r.Address, nil, nil), Status: http.StatusOK, Length: len(raw), Body: raw}, err
}

// Change is a change by a writer: the content of one item.
type Change struct {
	Item int // which one
	Size int // of the payload; 0: the minimum
}

// ProposeAndApprove proposes changes and has two signers approve each. It returns the
// proposals.
func (r *Registry) ProposeAndApprove(ctx context.Context, changes []Change) ([]string, error) {
	ids := make([]string, len(changes))
	_, err := r.each(ctx, len(changes), min(32, len(changes)), func(ctx context.Context, writer *client.Client, i int) (err error) {
		ids[i], err = r.proposeAndApprove(ctx, writer, changes[i])
		return err
	})
	return ids, err
}

// Commit has writers commit proposals, each waiting for its response before the
// next.
func (r *Registry) Commit(ctx context.Context, ids []string, writers int) (WriteStats, error) {
	return r.each(ctx, len(ids), writers, func(ctx context.Context, writer *client.Client, i int) error {
		_, err := writer.Commit(ctx, ids[i])
		return err
	})
}

// Change has writers propose, sign and commit, one change after the other.
func (r *Registry) Change(ctx context.Context, changes []Change, writers int) (WriteStats, error) {
	return r.each(ctx, len(changes), writers, func(ctx context.Context, writer *client.Client, i int) error {
		id, err := r.proposeAndApprove(ctx, writer, changes[i])
		if err != nil {
			return err
		}
		_, err = writer.Commit(ctx, id)
		return err
	})
}

func (r *Registry) proposeAndApprove(ctx context.Context, writer *client.Client, change Change) (id string, err error) {
	proposed, err := writer.Propose(ctx, client.ProposalRequest{SchemaVersion: "1.0.0", Ops: []json.RawMessage{r.operation(change)}})
	if err != nil {
		return "", err
	}
	for i := range 2 {
		_, err := writer.Approve(ctx, proposed.ProposalID, client.Approval{SignerID: signerName(i), Algo: "ed25519",
			Sig: ed25519.Sign(r.signers[i], proposed.SignThis), SignedAt: time.Now()})
		if err != nil {
			return "", err
		}
	}
	return proposed.ProposalID, nil
}

// operation puts an item whose content is new. It is padded with labels, which
// hold 256 bytes each, until the payload has its size.
func (r *Registry) operation(change Change) json.RawMessage {
	const around = len(`{"ops":[`) + len(`],"schema_version":"1.0.0"}`)
	n := r.changeSerial.Add(1)
	op := fmt.Sprintf(`{"item":{"id":"region-%07d","kind":"region","labels":{"n":"%020d"},"title":"a place"},"op":"put"}`, change.Item, n)
	noise := rand.NewChaCha8([32]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24), byte(n >> 32)})
	var labels strings.Builder
	for i := 0; ; i++ {
		head := fmt.Sprintf(`"a%d":"`, i)
		room := min(change.Size-around-len(op)-labels.Len()-len(head)-len(`",`), 256)
		if room <= 0 {
			break
		}
		raw := make([]byte, (room+1)/2)
		_, _ = noise.Read(raw)
		fmt.Fprintf(&labels, `%s%s",`, head, fmt.Sprintf("%x", raw)[:room])
	}
	return json.RawMessage(strings.Replace(op, `"labels":{`, `"labels":{`+labels.String(), 1))
}

// each calls do n times, with as many at a time as there are writers. The first
// failure ends the rest.
func (r *Registry) each(ctx context.Context, n, writers int, do func(ctx context.Context, writer *client.Client, i int) error) (WriteStats, error) {
	if _, err := r.writer(writers - 1); err != nil {
		return WriteStats{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	took := make([]time.Duration, n)
	var next atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for _, writer := range r.writers[:writers] {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				from := time.Now()
				if err := do(ctx, writer, i); err != nil {
					cancel(err)
				}
				took[i] = time.Since(from)
			}
		})
	}
	all.Wait()
	elapsed := time.Since(began)
	if err := context.Cause(ctx); err != nil {
		return WriteStats{}, err
	}
	slices.Sort(took)
	return WriteStats{Elapsed: elapsed, P50: took[n/2], P99: took[n*99/100]}, nil
}

// profileSerial makes the names of profiles differ.
var profileSerial atomic.Int64

// WithProfile profiles the node during do, if profiles are wanted.
func (r *Registry) WithProfile(ctx context.Context, name string, do func() error) error {
	if profileFolder == "" {
		return do()
	}
	path := filepath.Join(profileFolder, fmt.Sprintf("registry-%s-%d.pprof", name, profileSerial.Add(1)))
	done := make(chan error, 1)
	go func() {
		raw, err := r.adminBody(ctx, "/debug/pprof/profile?seconds=1")
		if err == nil {
			err = os.WriteFile(path, raw, 0o644)
		}
		done <- err
	}()
	return errors.Join(do(), <-done)
}

func (r *Registry) adminBody(ctx context.Context, target string) ([]byte, error) {
	return fetchBody(ctx, "http://"+r.admin+target, "Authorization", "Bearer "+r.token)
}

// fetchBody returns the body of a 200.
func fetchBody(ctx context.Context, url string, header ...string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := web.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s %s", url, response.Status, body)
	}
	return body, err
}
