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
// registry: if there is one already, that is [fault.Conflict]. It requires the
// scope admin.
//
// The answer holds the two values that identify this log to others. Keep them
// where the node cannot change them.
func (c *Client) InitRegistry(ctx context.Context, first InitRequest) (Initialised, error) {
	k := c.newCall(ctx, "client.initregistry", http.MethodPost, "/registry/init")
	var answer Initialised
	if err := k.doRegistryJSON(ctx, first, &answer); err != nil {
		return Initialised{}, k.withDoubt(err, "It may have been created: check the head before you retry.")
	}
	if answer.Registry.IsZero() || answer.Key == "" {
		return Initialised{}, k.unexpected(nil, "there is no registry in it")
	}
	return answer, nil
}

// RegistryHead returns the head of the log.
func (c *Client) RegistryHead(ctx context.Context) (RegistryHead, error) {
	k := c.newCall(ctx, "client.registryhead", http.MethodGet, "/registry/head")
	var head RegistryHead
	if err := k.doRegistryJSON(ctx, nil, &head); err != nil {
		return RegistryHead{}, err
	}
	return head, k.checkHead(head)
}

// checkHead rejects a head that names no version.
func (k *call) checkHead(head RegistryHead) error {
	if head.Hash.IsZero() {
		return k.unexpected(nil, "there is no hash in it")
	}
	return nil
}

// RegistryVersion returns one version, with all items of that version if items
// is set. It checks the header against its hash; the signatures are checked by
// `micronode registry verify`.
func (c *Client) RegistryVersion(ctx context.Context, version uint64, items bool) (RegistryVersion, error) {
	path := "/registry/" + strconv.FormatUint(version, 10)
	if !items {
		path += "?items=false"
	}
	k := c.newCall(ctx, "client.registryversion", http.MethodGet, path)
	var answer RegistryVersion
	if err := k.doRegistryJSON(ctx, nil, &answer); err != nil {
		return RegistryVersion{}, err
	}
	if answer.Version != version || len(answer.Header) == 0 {
		return RegistryVersion{}, k.unexpected(nil, "it is about version %d and has a header of %d bytes", answer.Version, len(answer.Header))
	}
	if got := b3.Of(answer.Header); got != answer.Hash {
		return RegistryVersion{}, &fault.Error{Op: k.op, Kind: fault.IntegrityFail, Detail: "the header does not match its hash",
			Next: "Do not use it. Verify the log: micronode registry verify", Err: &callCause{corr: k.corrID, cause: &b3.Mismatch{Want: answer.Hash, Got: got}}}
	}
	return answer, nil
}

// Propose proposes a change. The change is made when enough signers have
// approved it and it is committed. It requires the scope registry:propose.
func (c *Client) Propose(ctx context.Context, want ProposalRequest) (Proposed, error) {
	return c.newCall(ctx, "client.propose", http.MethodPost, proposalsPath).doPropose(ctx, want)
}

const proposalsPath = "/registry/proposals"

// Supersede proposes to take back the version at the head, for a reason that
// the log keeps. It requires the scope registry:supersede.
func (c *Client) Supersede(ctx context.Context, want SupersedeRequest) (Proposed, error) {
	return c.newCall(ctx, "client.supersede", http.MethodPost, "/registry/supersede").doPropose(ctx, want)
}

func (k *call) doPropose(ctx context.Context, want any) (Proposed, error) {
	var answer Proposed
	if err := k.doRegistryJSON(ctx, want, &answer); err != nil {
		return Proposed{}, k.withDoubt(err, "It may have been accepted: check the open proposals before you retry.")
	}
	if answer.ProposalID == "" || len(answer.SignThis) == 0 {
		return Proposed{}, k.unexpected(nil, "there is no proposal in it")
	}
	return answer, nil
}

// Proposal returns the state of a proposal.
func (c *Client) Proposal(ctx context.Context, id string) (Proposal, error) {
	k, err := c.proposalCall(ctx, "client.proposal", http.MethodGet, proposalsPath, id)
	if err != nil {
		return Proposal{}, err
	}
	var answer Proposal
	if err := k.doRegistryJSON(ctx, nil, &answer); err != nil {
		return Proposal{}, err
	}
	if answer.ProposalID != id {
		return Proposal{}, k.unexpected(nil, "it is about another proposal")
	}
	return answer, nil
}

// Proposals returns the proposals that are open.
func (c *Client) Proposals(ctx context.Context) ([]Proposal, error) {
	var answer ProposalList
	err := c.newCall(ctx, "client.proposals", http.MethodGet, proposalsPath).doRegistryJSON(ctx, nil, &answer)
	return answer.Proposals, err
}

// Approve submits a signature over the SignThis of a proposal. It requires the
// scope registry:approve.
//
// The same signature counts once, so Approve may be repeated: if the answer of
// a try was lost and the next one is a [fault.DuplicateApproval], it has
// counted.
func (c *Client) Approve(ctx context.Context, id string, approval Approval) (Approved, error) {
	k, err := c.proposalCall(ctx, "client.approve", http.MethodPost, "/registry/approvals", id)
	if err != nil {
		return Approved{}, err
	}
	k.repeatable = true
	var answer Approved
	err = k.doRegistryJSON(ctx, approvalJSON{approval.SignerID, approval.Algo, approval.Sig, approval.SignedAt.UTC().Format(registryTime)}, &answer)
	if err != nil && k.maybeApplied && fault.KindOf(err) == fault.DuplicateApproval {
		now, lost := c.Proposal(ctx, id)
		return Approved{Status: "accepted", Approvals: len(now.Approvals), Quorum: now.Quorum}, lost
	}
	if err != nil {
		return Approved{}, err
	}
	if answer.Status == "" {
		return Approved{}, k.unexpected(nil, "it lacks the result of the approval")
	}
	return answer, nil
}

// approvalJSON is an approval on the wire. The time always has three digits
// after the point, because it becomes part of what is hashed.
type approvalJSON struct {
	SignerID string `json:"signer_id"`
	Algo     string `json:"algo"`
	Sig      []byte `json:"sig"`
	SignedAt string `json:"signed_at"`
}

const registryTime = "2006-01-02T15:04:05.000Z"

// Commit makes a version of a proposal that has enough approvals; otherwise
// the error is [fault.QuorumFailed]. It requires the scope registry:commit.
//
// If the answer is lost, Commit asks the node for the state of the proposal,
// so that a commit that was made is not reported as failed.
func (c *Client) Commit(ctx context.Context, id string) (RegistryHead, error) {
	k, err := c.proposalCall(ctx, "client.commit", http.MethodPost, "/registry/commit", id)
	if err != nil {
		return RegistryHead{}, err
	}
	var head RegistryHead
	err = k.doRegistryJSON(ctx, struct{}{}, &head)
	if err == nil {
		return head, k.checkHead(head)
	}
	if k.maybeApplied {
		if made, err := c.committedHead(ctx, id); err == nil {
			return made, nil
		}
	}
	return RegistryHead{}, k.withDoubt(err, "It may have been committed: check the proposal, or the head.")
}

// committedHead returns the version that a proposal has become.
func (c *Client) committedHead(ctx context.Context, id string) (RegistryHead, error) {
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

// RegistryLogKey returns the ID of the registry, and the key with which its
// log signs. The node's own statement proves nothing: compare it with what was
// written down when the registry was made.
func (c *Client) RegistryLogKey(ctx context.Context) (RegistryLogKey, error) {
	k := c.newCall(ctx, "client.registrykey", http.MethodGet, "/registry/key")
	var answer RegistryLogKey
	if err := k.doRegistryJSON(ctx, nil, &answer); err != nil {
		return RegistryLogKey{}, err
	}
	if answer.Registry.IsZero() || answer.Key == "" {
		return RegistryLogKey{}, k.unexpected(nil, "there is no key in it")
	}
	return answer, nil
}

// RegistryBundle returns one version with all that proves it, to be verified
// without the node.
func (c *Client) RegistryBundle(ctx context.Context, version uint64) ([]byte, error) {
	return c.newCall(ctx, "client.registrybundle", http.MethodGet, "/registry/bundle/"+strconv.FormatUint(version, 10)).doRegistry(ctx, nil, "*/*")
}

// RegistryLog returns a file of the transparency log: its checkpoint, or a
// tile, as C2SP tlog-tiles names them.
func (c *Client) RegistryLog(ctx context.Context, path string) ([]byte, error) {
	at := url.URL{Path: "/registry/log/" + path}
	return c.newCall(ctx, "client.registrylog", http.MethodGet, at.EscapedPath()).doRegistry(ctx, nil, "*/*")
}

// proposalCall is a call about one proposal.
func (c *Client) proposalCall(ctx context.Context, op, method, path, id string) (*call, error) {
	if isUnroutable(id) {
		return nil, fault.New(op, fault.Malformed, "%q is not a proposal ID", id).Advise("Give the ID that Propose returned.")
	}
	return c.newCall(ctx, op, method, path+"/"+url.PathEscape(id)), nil
}

// doRegistryJSON makes a small call about the registry: it sends the document
// in, unless it is nil, and decodes the answer into out.
func (k *call) doRegistryJSON(ctx context.Context, in, out any) error {
	raw, err := k.doRegistry(ctx, in, "application/json")
	if err != nil {
		return err
	}
	return k.unmarshal(raw, out)
}

// doRegistry retries until it succeeds. A call that must not be applied twice
// is repeated only if the node refused to start it.
func (k *call) doRegistry(ctx context.Context, in any, accept string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, k.client.timeout)
	defer cancel()
	for n := 1; ; n++ {
		raw, err := k.doLargeOnce(ctx, in, accept)
		if err == nil {
			return raw, nil
		}
		k.maybeApplied = k.maybeApplied || maybeApplied(err)
		if !k.repeatable && !isRefused(err) {
			return nil, err
		}
		if err := k.client.waitRetry(ctx, n, err); err != nil {
			return nil, err
		}
	}
}

// doLargeOnce makes one try.
func (k *call) doLargeOnce(ctx context.Context, in any, accept string) ([]byte, error) {
	header, body := requestJSON(ctx, in)
	header.Set("Accept", accept)
	answer, err := k.send(ctx, header, body)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(answer.Body, maxRegistry+1))
	switch {
	case err != nil:
		return nil, k.tryError(ctx, answer.Request.Context(), err)
	case len(raw) > maxRegistry:
		return nil, k.unexpected(nil, "it is larger than %d bytes", maxRegistry)
	}
	return raw, nil
}

// withDoubt adds the next step to an error after which the outcome is unknown.
func (k *call) withDoubt(err error, next string) error {
	if own, ok := err.(*fault.Error); ok && maybeApplied(err) {
		own.Next = next
	}
	return err
}
