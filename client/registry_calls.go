package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"micronode/b3"
	"micronode/fault"
)

// maxRegistry bounds a document of the registry. A version with all its items
// may be large, and so may 256 headers in one tile.
const maxRegistry = 64 << 20

// InitRegistry begins a log with its first set of signers. A node has one
// registry: if there is one already, that is [fault.Conflict]. It takes the
// scope admin.
//
// The answer holds the two things by which others can tell this log from any
// other. They belong somewhere where the node cannot change them.
func (c *Client) InitRegistry(ctx context.Context, first InitRequest) (Initialised, error) {
	k := c.newCall(ctx, "client.initregistry", http.MethodPost, "/registry/init")
	var answer Initialised
	if err := k.registry(ctx, first, &answer); err != nil {
		return Initialised{}, k.inDoubt(err, "It may have been made all the same: ask for the head before you try again.")
	}
	if answer.Registry.IsZero() || answer.Key == "" {
		return Initialised{}, k.strange(nil, "there is no registry in it")
	}
	return answer, nil
}

// RegistryHead asks for the end of the log.
func (c *Client) RegistryHead(ctx context.Context) (RegistryHead, error) {
	k := c.newCall(ctx, "client.registryhead", http.MethodGet, "/registry/head")
	var head RegistryHead
	if err := k.registry(ctx, nil, &head); err != nil {
		return RegistryHead{}, err
	}
	return head, k.checkHead(head)
}

// checkHead refuses a head that names no version.
func (k *call) checkHead(head RegistryHead) error {
	if head.Hash.IsZero() {
		return k.strange(nil, "there is no hash in it")
	}
	return nil
}

// RegistryVersion asks for one version, with all the items that there were at
// it if they are wanted. That the header is what the hash says is checked here;
// who signed it is for `micronode registry verify`.
func (c *Client) RegistryVersion(ctx context.Context, version uint64, items bool) (RegistryVersion, error) {
	path := "/registry/" + strconv.FormatUint(version, 10)
	if !items {
		path += "?items=false"
	}
	k := c.newCall(ctx, "client.registryversion", http.MethodGet, path)
	var answer RegistryVersion
	if err := k.registry(ctx, nil, &answer); err != nil {
		return RegistryVersion{}, err
	}
	if answer.Version != version || len(answer.Header) == 0 {
		return RegistryVersion{}, k.strange(nil, "it is about version %d and has a header of %d bytes", answer.Version, len(answer.Header))
	}
	if got := b3.Of(answer.Header); got != answer.Hash {
		return RegistryVersion{}, &fault.Error{Op: k.op, Kind: fault.IntegrityFail, Detail: "the header is not what its hash says",
			Next: "Do not use it. Verify the log: micronode registry verify", Err: &trace{corr: k.corr, cause: &b3.Mismatch{Want: answer.Hash, Got: got}}}
	}
	return answer, nil
}

// Propose asks for a change. Nothing is changed until enough signers have
// approved it and somebody commits it. It takes the scope registry:propose.
func (c *Client) Propose(ctx context.Context, want ProposalRequest) (Proposed, error) {
	return c.newCall(ctx, "client.propose", http.MethodPost, proposalsPath).propose(ctx, want)
}

const proposalsPath = "/registry/proposals"

// Supersede proposes to take back the version at the head, for a reason that
// the log keeps. It takes the scope registry:supersede.
func (c *Client) Supersede(ctx context.Context, want SupersedeRequest) (Proposed, error) {
	return c.newCall(ctx, "client.supersede", http.MethodPost, "/registry/supersede").propose(ctx, want)
}

func (k *call) propose(ctx context.Context, want any) (Proposed, error) {
	var answer Proposed
	if err := k.registry(ctx, want, &answer); err != nil {
		return Proposed{}, k.inDoubt(err, "It may have been taken all the same: look at the open proposals before you try again.")
	}
	if answer.ProposalID == "" || len(answer.SignThis) == 0 {
		return Proposed{}, k.strange(nil, "there is no proposal in it")
	}
	return answer, nil
}

// Proposal asks what has become of a proposal.
func (c *Client) Proposal(ctx context.Context, id string) (Proposal, error) {
	k, err := c.proposalCall(ctx, "client.proposal", http.MethodGet, proposalsPath, id)
	if err != nil {
		return Proposal{}, err
	}
	var answer Proposal
	if err := k.registry(ctx, nil, &answer); err != nil {
		return Proposal{}, err
	}
	if answer.ProposalID != id {
		return Proposal{}, k.strange(nil, "it is about another proposal")
	}
	return answer, nil
}

// Proposals asks for the proposals that are open.
func (c *Client) Proposals(ctx context.Context) ([]Proposal, error) {
	var answer ProposalList
	err := c.newCall(ctx, "client.proposals", http.MethodGet, proposalsPath).registry(ctx, nil, &answer)
	return answer.Proposals, err
}

// Approve hands in a signature over the SignThis of a proposal. It takes the
// scope registry:approve.
//
// The same signature counts once, so Approve may be repeated: if a try was lost
// on the way and the next one is a [fault.DuplicateApproval], it has counted.
func (c *Client) Approve(ctx context.Context, id string, approval Approval) (Approved, error) {
	k, err := c.proposalCall(ctx, "client.approve", http.MethodPost, "/registry/approvals", id)
	if err != nil {
		return Approved{}, err
	}
	k.repeatable = true
	var answer Approved
	err = k.registry(ctx, signedApproval{approval.SignerID, approval.Algo, approval.Sig, approval.SignedAt.UTC().Format(registryTime)}, &answer)
	if err != nil && k.unsure && fault.KindOf(err) == fault.DuplicateApproval {
		now, lost := c.Proposal(ctx, id)
		return Approved{Status: "accepted", Approvals: len(now.Approvals), Quorum: now.Quorum}, lost
	}
	if err != nil {
		return Approved{}, err
	}
	if answer.Status == "" {
		return Approved{}, k.strange(nil, "it does not say what became of the approval")
	}
	return answer, nil
}

// signedApproval is an approval on the wire. The time has always three digits
// behind the point, because it becomes part of what is hashed.
type signedApproval struct {
	SignerID string `json:"signer_id"`
	Algo     string `json:"algo"`
	Sig      []byte `json:"sig"`
	SignedAt string `json:"signed_at"`
}

const registryTime = "2006-01-02T15:04:05.000Z"

// Commit makes a version of a proposal that has enough approvals; otherwise it
// is [fault.QuorumFailed]. It takes the scope registry:commit.
//
// If the answer is lost on the way, the node is asked what has become of the
// proposal, so that a commit that was made is not taken for one that failed.
func (c *Client) Commit(ctx context.Context, id string) (RegistryHead, error) {
	k, err := c.proposalCall(ctx, "client.commit", http.MethodPost, "/registry/commit", id)
	if err != nil {
		return RegistryHead{}, err
	}
	var head RegistryHead
	err = k.registry(ctx, struct{}{}, &head)
	if err == nil {
		return head, k.checkHead(head)
	}
	if k.unsure {
		if made, err := c.committed(ctx, id); err == nil {
			return made, nil
		}
	}
	return RegistryHead{}, k.inDoubt(err, "It may have been committed all the same: look at the proposal, or at the head.")
}

// committed is the version that a proposal has become.
func (c *Client) committed(ctx context.Context, id string) (RegistryHead, error) {
	proposal, err := c.Proposal(ctx, id)
	if err != nil {
		return RegistryHead{}, err
	}
	if proposal.Version == nil {
		return RegistryHead{}, fault.New("client.commit", fault.NotFound, "it is not committed")
	}
	made, err := c.RegistryVersion(ctx, *proposal.Version, false)
	return RegistryHead{Version: made.Version, Hash: made.Hash, PayloadB3: made.PayloadB3, CommittedAt: made.CommittedAt}, err
}

// RegistryLogKey asks which registry it is, and with which key its log signs.
// What a node says of itself proves nothing: compare it with what was written
// down when the registry was made.
func (c *Client) RegistryLogKey(ctx context.Context) (RegistryLogKey, error) {
	k := c.newCall(ctx, "client.registrykey", http.MethodGet, "/registry/key")
	var answer RegistryLogKey
	if err := k.registry(ctx, nil, &answer); err != nil {
		return RegistryLogKey{}, err
	}
	if answer.Registry.IsZero() || answer.Key == "" {
		return RegistryLogKey{}, k.strange(nil, "there is no key in it")
	}
	return answer, nil
}

// RegistryBundle asks for one version with all that proves it, to be verified
// without the node.
func (c *Client) RegistryBundle(ctx context.Context, version uint64) ([]byte, error) {
	return c.newCall(ctx, "client.registrybundle", http.MethodGet, "/registry/bundle/"+strconv.FormatUint(version, 10)).registryBytes(ctx, nil, "*/*")
}

// RegistryLog asks for a file of the transparency log: its checkpoint, or a
// tile, as C2SP tlog-tiles names them.
func (c *Client) RegistryLog(ctx context.Context, path string) ([]byte, error) {
	at := url.URL{Path: "/registry/log/" + path}
	return c.newCall(ctx, "client.registrylog", http.MethodGet, at.EscapedPath()).registryBytes(ctx, nil, "*/*")
}

// proposalCall is a call about one proposal.
func (c *Client) proposalCall(ctx context.Context, op, method, path, id string) (*call, error) {
	if unroutable(id) {
		err := fault.New(op, fault.Malformed, "%q is no proposal", id)
		err.Next = "Give the ID that Propose returned."
		return nil, err
	}
	return c.newCall(ctx, op, method, path+"/"+url.PathEscape(id)), nil
}

// registry is a small call about the registry: a document goes in, if there is
// one, and one comes out.
func (k *call) registry(ctx context.Context, in, out any) error {
	raw, err := k.registryBytes(ctx, in, "application/json")
	if err != nil {
		return err
	}
	return k.parse(raw, out)
}

// registryBytes tries until it works. What must not be done twice is repeated
// only if the node refused to begin with it.
func (k *call) registryBytes(ctx context.Context, in any, accept string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, k.client.timeout)
	defer cancel()
	for n := 1; ; n++ {
		raw, err := k.largeDocument(ctx, in, accept)
		if err == nil {
			return raw, nil
		}
		k.unsure = k.unsure || unsure(err)
		if !k.repeatable && !refused(err) {
			return nil, err
		}
		if err := k.client.again(ctx, n, err); err != nil {
			return nil, err
		}
	}
}

// largeDocument makes one try.
func (k *call) largeDocument(ctx context.Context, in any, accept string) ([]byte, error) {
	header, body := question(ctx, in)
	header.Set("Accept", accept)
	answer, err := k.send(ctx, header, body)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(answer.Body, maxRegistry+1))
	switch {
	case err != nil:
		return nil, k.failure(ctx, answer.Request.Context(), err)
	case len(raw) > maxRegistry:
		return nil, k.strange(nil, "it is larger than %d bytes", maxRegistry)
	}
	return raw, nil
}

// inDoubt adds the next step to an error after which nobody knows whether
// something was done.
func (k *call) inDoubt(err error, next string) error {
	if own, ok := err.(*fault.Error); ok && unsure(err) {
		own.Next = next
	}
	return err
}
