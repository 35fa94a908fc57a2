package registrytest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"micronode/b3"
	"micronode/client"
)

// toyRegistry is a registry of a few lines. With a flaw it breaks one rule.
type toyRegistry struct {
	flaw string

	mu          sync.Mutex
	begun       bool
	heads       []client.RegistryHead
	items       map[string]int // the version that changed each last
	proposals   map[string]*toyProposal
	calls       int
	lostCommits []bool // whether the next commits whose answers are lost are kept
}

type toyProposal struct {
	item        string
	itemVersion int
	committed   bool
	signers     map[string]bool
}

func newToyRegistry(flaw string) *toyRegistry {
	return &toyRegistry{flaw: flaw, items: map[string]int{}, proposals: map[string]*toyProposal{}, heads: []client.RegistryHead{toyHead(0)}}
}

func toyHead(version int) client.RegistryHead {
	return client.RegistryHead{Version: uint64(version), Hash: b3.Of(fmt.Append(nil, version))}
}

func (r *toyRegistry) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, _ := io.ReadAll(request.Body) // a missing body is rejected as malformed
	status, answer := r.answer(strings.Split(request.URL.Path, "/"), body)
	if status == 0 {
		panic(http.ErrAbortHandler) // no answer at all
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // the client of a test that has ended does not read it
}

// refusal is a refusal.
func refusal(status int, code string) (int, any) { return status, map[string]string{"code": code} }

func (r *toyRegistry) answer(path []string, body []byte) (int, any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	id := path[len(path)-1]
	switch path[2] {
	case "init":
		if r.begun {
			return refusal(409, "Conflict")
		}
		r.begun = true
		return 201, client.Initialised{Registry: r.heads[0].Hash, Key: "key", Head: r.heads[0]}
	case "head":
		return 200, r.head()
	case "proposals":
		return r.propose(body)
	case "approvals":
		return r.approve(body, r.proposals[id])
	default:
		return r.commit(r.proposals[id])
	}
}

func (r *toyRegistry) head() client.RegistryHead {
	n := len(r.heads) - 1
	switch {
	case r.flaw == "shows an old head" && r.calls%7 == 0:
		n = max(0, n-1)
	case r.flaw == "shows another hash" && r.calls%7 == 0:
		return client.RegistryHead{Version: uint64(n), Hash: b3.Of([]byte("another"))}
	}
	return r.heads[n]
}

func (r *toyRegistry) propose(body []byte) (int, any) {
	if r.flaw == "hangs up on proposals" && len(r.proposals) > 5 {
		return 0, nil
	}
	var wanted struct {
		Ops []struct{ Item struct{ ID string } }
	}
	if json.Unmarshal(body, &wanted) != nil || len(wanted.Ops) != 1 {
		return refusal(400, "Malformed")
	}
	id, item := fmt.Sprint("p", len(r.proposals)), wanted.Ops[0].Item.ID
	r.proposals[id] = &toyProposal{item: item, itemVersion: r.items[item], signers: map[string]bool{}}
	return 202, client.Proposed{ProposalID: id, SignThis: []byte(id)}
}

func (r *toyRegistry) approve(body []byte, p *toyProposal) (int, any) {
	var a client.Approval
	switch {
	case json.Unmarshal(body, &a) != nil:
		return refusal(400, "Malformed")
	case p.committed:
		return refusal(409, "Conflict")
	case p.signers[a.SignerID] && r.flaw != "lets signers sign twice":
		return refusal(409, "DuplicateApproval")
	}
	p.signers[a.SignerID] = true
	return 200, client.Approved{Approvals: len(p.signers)}
}

func (r *toyRegistry) commit(p *toyProposal) (int, any) {
	switch {
	case (p.committed || r.items[p.item] != p.itemVersion) && r.flaw != "commits what is stale":
		return refusal(409, "Conflict")
	case len(p.signers) < quorum && r.flaw != "needs no quorum":
		return refusal(422, "QuorumFailed")
	case r.flaw == "is vague":
		return refusal(500, "Internal")
	}
	kept, lost := true, len(r.lostCommits) > 0
	if lost {
		kept, r.lostCommits = r.lostCommits[0], r.lostCommits[1:]
	}
	if !kept {
		return refusal(503, "StorageBusy")
	}
	if r.flaw == "forgets commits" && len(r.heads)%3 == 0 {
		return 201, toyHead(len(r.heads))
	}
	if r.flaw == "leaves versions out" && len(r.heads) == 3 {
		r.heads = append(r.heads, toyHead(3))
	}
	r.heads = append(r.heads, toyHead(len(r.heads)))
	p.committed, r.items[p.item] = true, len(r.heads)-1
	if lost {
		return 0, nil
	}
	return 201, r.heads[len(r.heads)-1]
}

func (r *toyRegistry) lose(kept bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lostCommits = append(r.lostCommits, kept)
}

// runToyRegistries runs a workload on toys.
func runToyRegistries(t *testing.T, w Workload, toys ...*toyRegistry) (Workload, History) {
	t.Helper()
	for _, r := range toys {
		server := httptest.NewServer(r)
		t.Cleanup(server.Close)
		w.URLs = append(w.URLs, server.URL)
	}
	w.Client, w.Signers = &http.Client{Transport: &http.Transport{}}, Signers()
	t.Cleanup(w.Client.CloseIdleConnections)
	if begun, err := w.Init(t.Context()); err != nil || begun.Key != "key" {
		t.Fatalf("begun as %+v, %v", begun, err)
	}
	return w, w.Run(t.Context())
}

func TestARegistryThatIsRightPasses(t *testing.T) {
	for name, w := range map[string]Workload{
		"":                      {},
		"another seed":          {Seed: 1},
		"hangs up on proposals": {},
	} {
		w, history := runToyRegistries(t, w, newToyRegistry(name))
		if err := Check(history); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		if len(history) < 100 || name == "" && len(history.Commits()) < 3 {
			t.Errorf("%q: they did little: %v", name, history.Answers())
		}
		if _, err := w.Init(t.Context()); err == nil || !strings.Contains(err.Error(), "409") {
			t.Errorf("%q: begun twice: %v", name, err)
		}
	}
}

func TestAnswersThatAreLost(t *testing.T) {
	r, halfway := newToyRegistry(""), 0
	_, history := runToyRegistries(t, Workload{LoseNextAnswer: r.lose, Halfway: func() { halfway++ }}, r)
	if err := Check(history); err != nil {
		t.Error(err)
	}
	if n := history.Answers()["commit ?"]; n == 0 || n > 5 {
		t.Errorf("%d answers were lost", n)
	}
	if halfway != 1 {
		t.Errorf("it was halfway %d times", halfway)
	}
}

// A registry that breaks one rule is detected, if not by the first seed then by
// the next ones.
func TestARegistryThatIsWrongIsFoundOut(t *testing.T) {
	for _, flaw := range []string{
		"shows an old head", "shows another hash", "lets signers sign twice", "commits what is stale",
		"needs no quorum", "is vague", "forgets commits", "leaves versions out",
	} {
		found := false
		for seed := uint64(0); seed < 5 && !found; seed++ {
			_, history := runToyRegistries(t, Workload{Seed: seed}, newToyRegistry(flaw))
			found = Check(history) != nil
		}
		if !found {
			t.Errorf("a registry that %s gets away with it", flaw)
		}
	}
}

// Each of two nodes has its own proposals, and there are no reads. These two
// share nothing, so both return the same versions.
func TestTwoNodes(t *testing.T) {
	_, history := runToyRegistries(t, Workload{}, newToyRegistry(""), newToyRegistry(""))
	versions := map[int]int{}
	for _, c := range history.Commits() {
		versions[c.Node]++
		if c.Version == 0 || c.Hash != toyHead(int(c.Version)).Hash.String() {
			t.Errorf("a commit is %+v", c)
		}
	}
	if versions[0] == 0 || versions[1] == 0 {
		t.Errorf("commits by node: %v", versions)
	}
	for answer := range history.Answers() {
		if strings.HasPrefix(answer, "read") || strings.Contains(answer, "Malformed") || strings.Contains(answer, unknown) {
			t.Errorf("they were told %q", answer)
		}
	}
}

func TestNobodyIsThere(t *testing.T) {
	w := Workload{URLs: []string{"http://127.0.0.1:1"}, Client: &http.Client{Transport: &http.Transport{}}, Signers: Signers()}
	if _, err := w.Init(t.Context()); err == nil {
		t.Error("a registry was begun at nobody's")
	}
	w.URLs[0] = "no URL:"
	if answers := w.Run(t.Context()).Answers(); answers["propose"]+answers["commit"]+answers["approve"] > 0 {
		t.Errorf("nobody answered %v", answers)
	}
}
