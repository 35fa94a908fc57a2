package registrytest

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"micronode/client"
	"micronode/internal/registry/ledger"
)

// Workload is a set of clients that use a registry concurrently.
type Workload struct {
	URLs    []string // of one node, or of two on one storage
	Client  *http.Client
	Signers []Signer // three, of which two are enough
	Seed    uint64   // which requests they make; their timing is up to the machine
	Steps   int      // how many requests each of them makes; 30 if it is zero

	// LoseNextAnswer, if it is not nil, makes the next write of the storage
	// fail: its answer is lost, whether it is kept or not.
	LoseNextAnswer func(kept bool)

	// Halfway, if it is not nil, is called once by one of the clients in the
	// middle, while the others go on.
	Halfway func()
}

// Signer is a name with a key.
type Signer struct {
	ID  string
	Key ed25519.PrivateKey
}

// Signers returns three signers, whose keys are the same every time.
func Signers() (all []Signer) {
	for i, id := range []string{"alice", "bob", "carol"} {
		all = append(all, Signer{id, ed25519.NewKeyFromSeed(bytes.Repeat([]byte{byte(i + 1)}, ed25519.SeedSize))})
	}
	return all
}

// History lists the requests of clients, their times, and their answers.
type History []porcupine.Operation

// String returns one line for each.
func (h History) String() (text string) {
	for _, op := range h {
		text += fmt.Sprintf("%d %11d %11d %+v -> %+v\n", op.ClientId, op.Call, op.Return, op.Input, op.Output)
	}
	return text
}

// Commit is a commit that was acknowledged, and by which of the nodes.
type Commit struct {
	Node    int
	Version uint64
	Hash    string
}

// Commits returns all that were acknowledged.
func (h History) Commits() (all []Commit) {
	for _, op := range h {
		in, out := op.Input.(input), op.Output.(output)
		if in.what == "commit" && out.code == "" {
			all = append(all, Commit{in.node, out.version, out.hash})
		}
	}
	return all
}

// Answers counts the answers: "commit" for what was done, "commit Conflict" for
// what was refused, "commit ?" for unknown outcomes.
func (h History) Answers() map[string]int {
	count := map[string]int{}
	for _, op := range h {
		answer := op.Input.(input).what
		if code := op.Output.(output).code; code != "" {
			answer += " " + code
		}
		count[answer]++
	}
	return count
}

// Init initialises a registry with a quorum of two of the signers.
func (w Workload) Init(ctx context.Context) (begun client.Initialised, err error) {
	first := client.InitRequest{M: quorum}
	for _, s := range w.Signers {
		var public ledger.PublicKey
		copy(public[:], s.Key.Public().(ed25519.PublicKey))
		first.Keys = append(first.Keys, client.RegistryKey{SignerID: s.ID, Public: public.String()})
	}
	status, data, err := w.send(ctx, 0, http.MethodPost, "/registry/init", first)
	if err == nil && status != http.StatusCreated {
		err = fmt.Errorf("init: %d %s", status, data)
	}
	if err == nil {
		err = json.Unmarshal(data, &begun)
	}
	return begun, err
}

// clients is how many there are.
const clients = 6

// Run runs the clients on a newly initialised registry.
func (w Workload) Run(ctx context.Context) History {
	if w.Steps == 0 {
		w.Steps = 30
	}
	r := &workloadRun{Workload: w, ctx: ctx, began: time.Now()}
	var all sync.WaitGroup
	for id := range clients {
		all.Go(func() { r.client(id) }) //lockblock:allow this package is a test; all are waited for below
	}
	all.Wait()
	if len(w.URLs) == 1 {
		r.record(0, input{what: "read"}, r.read)
	}
	return r.history
}

// client makes the requests of one client.
func (r *workloadRun) client(id int) {
	random := rand.New(rand.NewPCG(r.Seed, uint64(id)))
	for range r.Steps {
		if r.steps.Add(1) == int64(clients*r.Steps/2) && r.Halfway != nil {
			r.Halfway()
		}
		r.step(id, random)
	}
}

// send sends a request and reads the answer.
func (w Workload) send(ctx context.Context, node int, method, path string, body any) (status int, answer []byte, err error) {
	var data []byte
	if body != nil {
		if data, err = json.Marshal(body); err != nil {
			return 0, nil, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, w.URLs[node]+path, bytes.NewReader(data))
	if err != nil {
		return 0, nil, err
	}
	response, err := w.Client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	answer, err = io.ReadAll(response.Body)
	_ = response.Body.Close() // all of it was read, or err says so
	return response.StatusCode, answer, err
}

// workloadRun is a running workload.
type workloadRun struct {
	// set at construction
	Workload
	ctx   context.Context
	began time.Time

	steps atomic.Int64 // steps

	mu        sync.Mutex
	history   History
	submitted []submittedProposal // by number
	lost      int                 // answers
}

// submittedProposal is a proposal, and the node that has it.
type submittedProposal struct {
	node int
	client.Proposed
}

// step makes one request.
func (r *workloadRun) step(id int, random *rand.Rand) {
	node, least := id%len(r.URLs), 0
	if len(r.URLs) > 1 {
		least = 3 // no reads
	}
	known := r.recentProposal(node, random)
	switch dice := least + random.IntN(20-least); {
	case dice < 3:
		r.record(id, input{what: "read"}, r.read)
	case dice < 6 || known < 0:
		if n := r.reserveProposal(node); n >= 0 {
			r.record(id, input{node: node, what: "propose", proposal: n, item: random.IntN(maxItems)}, r.propose)
		}
	case dice < 14:
		r.record(id, input{node: node, what: "approve", proposal: known, signer: random.IntN(len(r.Signers))}, r.approve)
	default:
		if r.LoseNextAnswer != nil && random.IntN(5) == 0 {
			r.lose(random.IntN(2) == 0)
		}
		r.record(id, input{node: node, what: "commit", proposal: known}, r.commit)
	}
}

// recentProposal picks one of the last proposals made at a node: those that
// other clients work on, too.
func (r *workloadRun) recentProposal(node int, random *rand.Rand) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	var last []int
	for n, p := range slices.Backward(r.submitted) {
		if p.node == node && p.ProposalID != "" && len(last) < 3 {
			last = append(last, n)
		}
	}
	if len(last) == 0 {
		return -1
	}
	return last[random.IntN(len(last))]
}

// reserveProposal returns the number of the next proposal, or -1 if the model
// has no room for it.
func (r *workloadRun) reserveProposal(node int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.submitted) == maxProposals {
		return -1
	}
	r.submitted = append(r.submitted, submittedProposal{node: node})
	return len(r.submitted) - 1
}

// lose makes a write fail. Only a few, because each doubles the checker's work.
func (r *workloadRun) lose(kept bool) {
	r.mu.Lock()
	r.lost++
	few := r.lost <= 5
	r.mu.Unlock()
	if few {
		r.LoseNextAnswer(kept)
	}
}

// neverReturned is the return time of a lost answer.
const neverReturned = time.Hour

// record executes a request and records its times and its answer.
func (r *workloadRun) record(id int, in input, do func(input) output) {
	called := time.Since(r.began)
	out := do(in)
	returned := time.Since(r.began)
	if out.code == unknown {
		returned = neverReturned // it may happen at any time from now on
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history = append(r.history, porcupine.Operation{ClientId: id, Input: in, Call: int64(called), Output: out, Return: int64(returned)})
}

// call sends a request and returns the code of its answer.
func (r *workloadRun) call(node int, method, path string, body, answer any) string {
	status, data, err := r.send(r.ctx, node, method, path, body)
	var problem struct{ Code string }
	switch {
	case err != nil:
		return unknown
	case status >= 200 && status < 300:
		_ = json.Unmarshal(data, answer) // what is missing is not what the model wants
		return ""
	case json.Unmarshal(data, &problem) != nil, problem.Code == "", problem.Code == "StorageBusy", problem.Code == "Timeout":
		return unknown
	}
	return problem.Code
}

func (r *workloadRun) read(in input) output {
	var head client.RegistryHead
	return headOutput(r.call(in.node, http.MethodGet, "/registry/head", nil, &head), &head)
}

// headOutput is a head in the model's form. Version 0 is where its clients
// begin.
func headOutput(code string, head *client.RegistryHead) output {
	if code != "" {
		return output{code: code}
	}
	return output{version: head.Version, hash: head.Hash.String()}
}

func (r *workloadRun) propose(in input) output {
	var p client.Proposed
	manifest := r.Seed*maxProposals + uint64(in.proposal) + 1 // all different, or the second would change nothing
	code := r.call(in.node, http.MethodPost, "/registry/proposals", client.ProposalRequest{
		SchemaVersion: "1.0.0",
		Ops:           []json.RawMessage{fmt.Appendf(nil, `{"op":"put","item":{"kind":"name","id":"item%d","manifest":"b3:%064x"}}`, in.item, manifest)},
	}, &p)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.submitted[in.proposal].Proposed = p
	return output{code: code}
}

func (r *workloadRun) proposal(n int) client.Proposed {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.submitted[n].Proposed
}

func (r *workloadRun) approve(in input) output {
	var approved client.Approved
	p, s := r.proposal(in.proposal), r.Signers[in.signer]
	code := r.call(in.node, http.MethodPost, "/registry/approvals/"+p.ProposalID, client.Approval{
		SignerID: s.ID, Algo: "ed25519", Sig: ed25519.Sign(s.Key, p.SignThis), SignedAt: time.Now().UTC().Truncate(time.Millisecond),
	}, &approved)
	return output{code: code, count: approved.Approvals}
}

func (r *workloadRun) commit(in input) output {
	var head client.RegistryHead
	return headOutput(r.call(in.node, http.MethodPost, "/registry/commit/"+r.proposal(in.proposal).ProposalID, nil, &head), &head)
}
