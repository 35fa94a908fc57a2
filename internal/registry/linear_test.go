package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"micronode/client"
)

// Whatever many clients are told over HTTP while they propose, approve, commit
// and read at the same time could have been told to them one after another,
// also if the storage loses answers.
func TestAllAtOnceLooksLikeOneAfterAnother(t *testing.T) {
	for _, storage := range []struct {
		name   string
		fickle bool
		make   func(t *testing.T) Journal
	}{
		{"in memory", false, func(*testing.T) Journal { return inMemory() }},
		{"in files", false, func(t *testing.T) Journal { return files(t, t.TempDir()) }},
		{"in memory that loses answers", true, func(*testing.T) Journal { return inMemory() }},
		{"in files that lose answers", true, func(t *testing.T) Journal { return files(t, t.TempDir()) }},
	} {
		t.Run(storage.name, func(t *testing.T) {
			committed := uint64(0)
			for seed := range uint64(3) {
				w := &workload{fickle: &fickle{Journal: storage.make(t)}, lossy: storage.fickle, began: time.Now()}
				w.house = open(t, on(w.fickle))
				w.init()
				w.run(seed)
				head, _ := w.Head()
				committed += head.Version
				w.house.close()
				if result := porcupine.CheckOperationsTimeout(model, w.history, 20*time.Second); result != porcupine.Ok {
					t.Fatalf("seed %d: %d operations: %s\n%s", seed, len(w.history), result, w)
				}
			}
			if committed < 3 {
				t.Errorf("they committed %d times, which shows little", committed)
			}
		})
	}
}

// workload is clients that talk to one registry, and what they were told.
type workload struct {
	*house
	fickle *fickle
	lossy  bool // the storage loses answers
	began  time.Time

	mu      sync.Mutex
	history []porcupine.Operation
	made    []client.Proposed // by number
	lost    int               // answers
}

// String is the history, for whoever has to find out.
func (w *workload) String() (text string) {
	for _, op := range w.history {
		text += fmt.Sprintf("%d %9d %9d %+v -> %+v\n", op.ClientId, op.Call, op.Return, op.Input, op.Output)
	}
	return text
}

// run has some clients do some things each. Commits that fail because of the
// storage are not known to have happened until the end.
func (w *workload) run(seed uint64) {
	const clients, steps = 6, 30
	var all sync.WaitGroup
	for id := range clients {
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(id)))
			for range steps {
				w.step(id, random)
			}
		})
	}
	all.Wait()
	w.record(0, modelInput{what: "read"}, w.read)
}

// step does one thing.
func (w *workload) step(id int, random *rand.Rand) {
	known := w.known(random)
	switch dice := random.IntN(20); {
	case dice < 3:
		w.record(id, modelInput{what: "read"}, w.read)
	case dice < 6 || known < 0:
		if n := w.number(); n >= 0 {
			w.record(id, modelInput{what: "propose", proposal: n, item: random.IntN(modelItems)}, w.proposeItem)
		}
	case dice < 14:
		w.record(id, modelInput{what: "approve", proposal: known, signer: random.IntN(3)}, w.approveOne)
	default:
		if w.lossy && random.IntN(5) == 0 {
			w.lose(random.IntN(2) == 0)
		}
		w.record(id, modelInput{what: "commit", proposal: known}, w.commitOne)
	}
}

// known picks one of the proposals that were made last: those that others work
// on, too.
func (w *workload) known(random *rand.Rand) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	for range 4 {
		if n := len(w.made) - 1 - random.IntN(3); n >= 0 && w.made[n].ProposalID != "" {
			return n
		}
	}
	return -1
}

// number is that of the next proposal, or -1 if the model has no room for it.
func (w *workload) number() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.made) == modelProposals {
		return -1
	}
	w.made = append(w.made, client.Proposed{})
	return len(w.made) - 1
}

// lose makes a write go wrong. Only a few, because each doubles what the
// checker has to look at.
func (w *workload) lose(kept bool) {
	w.mu.Lock()
	w.lost++
	few := w.lost <= 5
	w.mu.Unlock()
	if few {
		w.fickle.goWrong(mishap{err: lost, kept: kept})
	}
}

// record does something and writes down when, and what came of it.
func (w *workload) record(id int, in modelInput, do func(modelInput) modelOutput) {
	called := time.Since(w.began)
	out := do(in)
	returned := time.Since(w.began)
	if out.code == "?" {
		returned = time.Hour // it may happen at any time from now on
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.history = append(w.history, porcupine.Operation{ClientId: id, Input: in, Call: int64(called), Output: out, Return: int64(returned)})
}

// ask sends a request and returns the code of what came of it.
func (w *workload) ask(method, path string, body, answer any) string {
	status, data := w.try(context.Background(), method, path, body)
	var problem struct{ Code string }
	switch {
	case status >= 200 && status < 300:
		_ = json.Unmarshal(data, answer) // what is not there is not what the model wants
		return ""
	case json.Unmarshal(data, &problem) == nil && problem.Code != "StorageBusy":
		return problem.Code
	}
	return "?"
}

func (w *workload) read(modelInput) modelOutput {
	var head client.RegistryHead
	code := w.ask("GET", "/registry/head", nil, &head)
	return headOut(code, head)
}

// headOut is a head as the model has it. Version 0 is where its clients begin.
func headOut(code string, head client.RegistryHead) modelOutput {
	if code != "" {
		return modelOutput{code: code}
	}
	return modelOutput{version: head.Version, hash: head.Hash.String()}
}

func (w *workload) proposeItem(in modelInput) modelOutput {
	var p client.Proposed
	op := name(fmt.Sprintf("item%d", in.item), fmt.Sprint(in.proposal))
	code := w.ask("POST", "/registry/proposals", request(op), &p)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made[in.proposal] = p
	return modelOutput{code: code}
}

func (w *workload) proposal(n int) client.Proposed {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.made[n]
}

func (w *workload) approveOne(in modelInput) modelOutput {
	var approved client.Approved
	p := w.proposal(in.proposal)
	code := w.ask("POST", "/registry/approvals/"+p.ProposalID, []signer{alice, bob, carol}[in.signer].approve(p), &approved)
	return modelOutput{code: code, count: approved.Approvals}
}

func (w *workload) commitOne(in modelInput) modelOutput {
	var head client.RegistryHead
	code := w.ask("POST", "/registry/commit/"+w.proposal(in.proposal).ProposalID, nil, &head)
	return headOut(code, head)
}

// The model is one that can say no.
func TestTheModelSaysNo(t *testing.T) {
	op := func(call, back int64, in modelInput, out modelOutput) porcupine.Operation {
		return porcupine.Operation{Input: in, Output: out, Call: call, Return: back}
	}
	propose := op(0, 1, modelInput{what: "propose"}, modelOutput{})
	approvals := []porcupine.Operation{
		op(2, 3, modelInput{what: "approve", signer: 0}, modelOutput{count: 1}),
		op(4, 5, modelInput{what: "approve", signer: 1}, modelOutput{count: 2}),
	}
	commit := func(at int64, code string, version uint64) porcupine.Operation {
		return op(at, at+1, modelInput{what: "commit"}, modelOutput{code: code, version: version, hash: "h"})
	}
	read := func(at int64, version uint64, hash string) porcupine.Operation {
		return op(at, at+1, modelInput{what: "read"}, modelOutput{version: version, hash: hash})
	}
	open := commit(6, "?", 0)
	open.Return = 100
	for what, history := range map[string]struct {
		after []porcupine.Operation
		want  bool
	}{
		"a commit":                      {append(approvals, commit(6, "", 1), read(8, 1, "h")), true},
		"without quorum":                {append(approvals[:1:1], commit(6, "", 1)), false},
		"twice":                         {append(approvals, commit(6, "", 1), commit(8, "", 2)), false},
		"a version left out":            {append(approvals, commit(6, "", 2)), false},
		"a head that goes back":         {append(approvals, commit(6, "", 1), read(8, 0, "g")), false},
		"another hash":                  {append(approvals, commit(6, "", 1), read(8, 1, "x")), false},
		"a conflict with nothing":       {append(approvals, commit(6, "Conflict", 0)), false},
		"not known and there":           {append(approvals, open, read(8, 1, "h"), read(10, 1, "h")), true},
		"not known and not there":       {append(approvals, open, read(8, 0, "g")), true},
		"not known, there and gone":     {append(approvals, open, read(8, 1, "h"), read(10, 0, "g")), false},
		"not known, and then done":      {append(approvals, open, commit(8, "", 1)), true},
		"not known, there, and done":    {append(approvals, open, read(8, 1, "h"), commit(10, "", 2)), false},
		"not known, and two of a thing": {append(approvals, open, read(8, 1, "h"), read(10, 1, "x")), false},
	} {
		if got := porcupine.CheckOperations(model, append([]porcupine.Operation{propose}, history.after...)); got != history.want {
			t.Errorf("%s: %t", what, got)
		}
	}
}
