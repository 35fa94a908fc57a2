package node

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/capability"
	"micronode/internal/flow"
	"micronode/internal/ingress"
)

// MintRequest requests a capability.
type MintRequest struct {
	Scopes []string `json:"scopes"`
	TTL    int64    `json:"ttl_s"`
	Path   string   `json:"path,omitempty"`
	Topic  string   `json:"topic,omitempty"`
	Rate   string   `json:"rate,omitempty"` // 10/1s, or 10/1s burst 20
	IPs    []string `json:"ips,omitempty"`  // addresses or prefixes
}

// Minted is the answer to a MintRequest.
type Minted struct {
	Token   string    `json:"token"`
	ID      string    `json:"id"` // for revoking it
	Expires time.Time `json:"expires"`
}

// tokenRoutes mint and revoke capabilities.
func (n *Node) tokenRoutes() []ingress.Route {
	admin := func(method, pattern string, handler ingress.Handler, docs ingress.Docs) ingress.Route {
		return ingress.Route{Service: service, Methods: []string{method}, Pattern: pattern, Handler: handler, Class: ingress.Control,
			Scope: string(capability.Admin), BodyCap: 64 << 10, Docs: docs}
	}
	return []ingress.Route{
		admin(http.MethodPost, "/admin/token", n.handleMint, ingress.Docs{Summary: "Mint a capability",
			Description: "A token minted with a capability inherits all its caveats.",
			Request:     MintRequest{}, Responses: []ingress.Response{{Status: http.StatusCreated, Body: Minted{}}}}),
		admin(http.MethodPost, "/admin/token/revoke", n.handleRevoke, ingress.Docs{Summary: "Revoke a capability and all tokens derived from it",
			Request: client.RevokeRequest{}, Responses: []ingress.Response{{Status: http.StatusOK, Body: client.Revoked{}}}, Kinds: []fault.Kind{fault.QuotaExceeded}}),
		admin(http.MethodGet, "/admin/token/revoked", n.handleRevoked, ingress.Docs{Summary: "List the revoked capabilities that have not expired",
			Responses: []ingress.Response{{Status: http.StatusOK, Body: client.RevokedList{}}}}),
	}
}

// mintFor mints a capability for a caller. One with a capability gets that one
// narrowed; the node's own user gets a new one.
func (n *Node) mintFor(r *http.Request, caveats capability.Caveats) (string, error) {
	if parent := ingress.Bearer(r.Header); !ingress.Local(r) && (!n.options.Open || parent != "") {
		return n.authority.MintFrom(parent, caveats)
	}
	return n.authority.Mint(caveats)
}

// handleMint mints a capability.
func (n *Node) handleMint(w http.ResponseWriter, r *http.Request) error {
	var request MintRequest
	if err := ingress.DecodeJSON(r, &request); err != nil {
		return err
	}
	caveats, err := request.caveats(time.Now())
	if err != nil {
		return err
	}
	token, err := n.mintFor(r, caveats)
	if err != nil {
		return err
	}
	summary, err := capability.Inspect(token)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	return ingress.WriteJSON(w, http.StatusCreated, Minted{Token: token, ID: summary.ID, Expires: summary.Expires})
}

func (m MintRequest) caveats(now time.Time) (capability.Caveats, error) {
	const op = "token.mint"
	ttl := time.Duration(m.TTL) * time.Second
	if m.TTL < 1 || m.TTL > int64(capability.MaxLife/time.Second) {
		return capability.Caveats{}, fault.New(op, fault.Malformed, "ttl_s must be from 1 to %d seconds", int64(capability.MaxLife/time.Second)).
			Advise("Set the lifetime of the capability with --ttl.")
	}
	caveats := capability.Caveats{Expires: now.Add(ttl)}
	if m.Path != "" {
		caveats.Paths = []string{m.Path}
	}
	if m.Topic != "" {
		caveats.Topics = []string{m.Topic}
	}
	for _, text := range m.Scopes {
		scope, err := capability.ParseScope(text)
		if err != nil {
			return caveats, err
		}
		caveats.Scopes = append(caveats.Scopes, scope)
	}
	if m.Rate != "" {
		rate, err := capability.ParseRate(m.Rate)
		if err != nil {
			return caveats, err
		}
		caveats.Rate = rate
	}
	for _, text := range m.IPs {
		prefix, err := parsePrefix(text)
		if err != nil {
			return caveats, err
		}
		caveats.Clients = append(caveats.Clients, prefix)
	}
	return caveats, nil
}

func parsePrefix(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return prefix, fault.New("token.mint", fault.Malformed, "%q is neither an IP address nor a prefix", text).
			Advise("Write 192.0.2.7 or 192.0.2.0/24.")
	}
	return prefix, nil
}

// handleRevoke revokes a capability. With a folder, it answers when the
// revocation is on the disk.
func (n *Node) handleRevoke(w http.ResponseWriter, r *http.Request) error {
	var request client.RevokeRequest
	if err := ingress.DecodeJSON(r, &request); err != nil {
		return err
	}
	if (request.ID == "") == (request.Token == "") {
		return &fault.Error{Op: "token.revoke", Kind: fault.Malformed, Detail: "the request needs a token or its identifier", Next: `Send {"id":"…"} or {"token":"mn1_…"}.`}
	}
	done, err := n.authority.Revoke(request.ID + request.Token)
	if err != nil {
		return err
	}
	if err := n.saveRevocations(r.Context()); err != nil {
		return err
	}
	return ingress.WriteJSON(w, http.StatusOK, client.Revoked{ID: done.ID, Until: done.Until, Kept: !n.amnesiac()})
}

func (n *Node) handleRevoked(w http.ResponseWriter, _ *http.Request) error {
	list := client.RevokedList{Revoked: []client.Revoked{}}
	for _, one := range n.authority.Revoked() {
		list.Revoked = append(list.Revoked, client.Revoked{ID: one.ID, Until: one.Until, Kept: !n.amnesiac()})
	}
	return ingress.WriteJSON(w, http.StatusOK, list)
}

// revocationWriter writes revocations to the folder.
type revocationWriter struct {
	lane  *flow.Lane  // one writer at a time, so that an older list never replaces a newer one
	dirty atomic.Bool // the folder lacks something
}

func newRevocationWriter(inventory *flow.Inventory) *revocationWriter {
	return &revocationWriter{lane: flow.NewLane(inventory, flow.LaneSpec{
		Service: service, Name: "revocations", Waiting: 64, Running: 1, From: "gateway, other parts", To: "folder",
	})}
}

// revokedFile is the JSON of revocations in the folder, and between parts.
type revokedFile struct {
	Revoked []capability.Revocation `json:"revoked"`
}

// loadRevocations loads the revocations from before the start. A list that
// cannot be read, or has disappeared, keeps the node from starting: revoked
// tokens would be valid again. Without the root under which they were minted no
// list is needed.
func (n *Node) loadRevocations() error {
	if n.amnesiac() {
		return nil
	}
	path := n.folder.join(revocationsFile)
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && n.folder.format.Revocations == n.root.ID():
		return &fault.Error{Op: folderOp, Kind: fault.Conflict, Detail: path + " is missing: it lists the revoked tokens, which would be valid again",
			Next: "Restore it from a backup. Or, if no token is revoked, write {\"revoked\":[]} into it. Or make all tokens void: " +
				"remove " + rootFile + ", or change auth.root if that is set."}
	case errors.Is(err, fs.ErrNotExist):
		text = []byte("{\"revoked\":[]}\n")
		if err := n.folder.write(revocationsFile, text); err != nil {
			return err
		}
	case err != nil:
		return folderError(n.folder.path, err)
	}
	var kept revokedFile
	err = json.Unmarshal(text, &kept)
	if err == nil {
		_, err = n.authority.AddRevocations(kept.Revoked)
	}
	if err != nil {
		return &fault.Error{Op: folderOp, Kind: fault.Malformed, Detail: path + " is not in the format of a node", Err: err,
			Next: "Restore it from a backup. Or remove it together with " + rootFile + ": then all tokens are void."}
	}
	return n.folder.keepRevocations(n.root.ID())
}

// saveRevocations writes the current revocations to the folder, if there is
// one.
func (n *Node) saveRevocations(ctx context.Context) error {
	if n.amnesiac() {
		return nil
	}
	n.revocationWriter.dirty.Store(true)
	err := n.submitIdempotent(ctx, func(ctx context.Context) error {
		if err := n.revocationWriter.lane.Enter(ctx); err != nil {
			return err
		}
		defer n.revocationWriter.lane.Leave()
		n.revocationWriter.dirty.Store(false)
		text, err := json.Marshal(revokedFile{n.authority.Revoked()})
		if err == nil {
			err = n.folder.write(revocationsFile, append(text, '\n'))
		}
		if err != nil {
			n.revocationWriter.dirty.Store(true)
		}
		return err
	})
	if own, ok := errors.AsType[*fault.Error](err); ok {
		retry := *own
		retry.Next = "The token is revoked, but the revocation is not on disk and does not survive a restart: revoke it again. " + own.Next
		return &retry
	}
	return err
}

// revokedPath is where the processes of a node exchange their revocations.
const revokedPath = "/part/revoked"

// revokedRoute merges the revocations of another process, and answers with
// those of this one.
func (n *Node) revokedRoute() ingress.Route {
	return ingress.Route{
		Service: service, Methods: []string{http.MethodPost}, Pattern: revokedPath, Class: ingress.Control, Scope: string(capability.Admin),
		Handler: func(w http.ResponseWriter, r *http.Request) error {
			var theirs revokedFile
			if err := ingress.DecodeJSON(r, &theirs); err != nil {
				return err
			}
			if err := n.mergeRevocations(r.Context(), theirs.Revoked); err != nil {
				return err
			}
			return ingress.WriteJSON(w, http.StatusOK, revokedFile{n.authority.Revoked()})
		},
		Docs: ingress.Docs{Summary: "Exchange revocations with another part of the node", Request: revokedFile{}},
	}
}

// mergeRevocations adds the revocations of another process, and saves them.
func (n *Node) mergeRevocations(ctx context.Context, list []capability.Revocation) error {
	fresh, err := n.authority.AddRevocations(list)
	if fresh > 0 || n.revocationWriter.dirty.Load() {
		err = errors.Join(err, n.saveRevocations(ctx))
	}
	return err
}

// syncRevocations exchanges revocations with a part. Both have the same ones
// afterwards.
func (r *remotePart) syncRevocations(ctx context.Context, status partStatus) error {
	if status.Revoked == "" || status.Revoked == r.node.authority.RevokedDigest() || status.Root != r.node.root.ID() {
		return nil // an older version, or nothing new, or another node
	}
	var theirs revokedFile
	if err := r.client.Call(ctx, http.MethodPost, revokedPath, revokedFile{r.node.authority.Revoked()}, &theirs); err != nil {
		return err
	}
	return r.node.mergeRevocations(ctx, theirs.Revoked)
}
