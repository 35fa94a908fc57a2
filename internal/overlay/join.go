package overlay

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/ingress"
	"micronode/internal/invitation"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
)

// How long an invitation and a share last, and how many may use them, if the
// operator does not say.
const (
	inviteTTL, inviteUses = time.Hour, 1
	shareTTL, shareUses   = 24 * time.Hour, 100
)

// How long Join waits for a session, and how often it looks. The deadline of its
// route is a little longer, so that the reason arrives.
const (
	joinTimeout  = 8 * time.Second
	joinDeadline = 10 * time.Second
	joinPoll     = 5 * time.Millisecond
)

// joinRoutes lists the routes by which nodes become acquainted.
func (o *Overlay) joinRoutes() []ingress.Route {
	route := func(method, pattern string, handler ingress.Handler, docs ingress.Docs) ingress.Route {
		r := ingress.Route{Service: service, Methods: []string{method}, Pattern: pattern, Handler: handler, Class: ingress.Control, Scope: "admin", Docs: docs}
		if method == http.MethodPost {
			r.BodyCap = 4 << 10
		}
		return r
	}
	id := []ingress.Param{{Name: "id", In: "path", Type: "string", Required: true, Doc: "The peer ID."}}
	join := route(http.MethodPost, "/overlay/join", o.handleJoin, ingress.Docs{Summary: "Join the node that made an invitation, or use a share",
		Description: "It answers when the two are connected. With an invitation they stay acquainted: until this node stops, or for good if it keeps its state. With a share they are until the share ends.",
		Request:     client.JoinRequest{}, Responses: []ingress.Response{{Status: http.StatusOK, Body: client.Joined{}}},
		Kinds: []fault.Kind{fault.Malformed, fault.Unauthorized, fault.NoRoute, fault.QuotaExceeded}})
	join.Deadline = joinDeadline
	return []ingress.Route{
		join,
		route(http.MethodPost, "/overlay/invitations", o.handleInvite, ingress.Docs{Summary: "Make an invitation, or a share",
			Description: "The answer is the only place where the string is shown. If the overlay listens on its default address, on loopback, it listens on all addresses of the machine from now on, until no invitation is open and no peer is known that came by one; with local it does not.",
			Request:     client.InvitationRequest{}, Responses: []ingress.Response{{Status: http.StatusCreated, Body: client.Invitation{}}},
			Kinds: []fault.Kind{fault.Malformed, fault.QuotaExceeded, fault.NotReady}}),
		route(http.MethodGet, "/overlay/invitations", o.handleListInvitations, ingress.Docs{Summary: "List the invitations that have not expired, and who used them",
			Responses: []ingress.Response{{Status: http.StatusOK, Body: client.InvitationList{}}}}),
		route(http.MethodDelete, "/overlay/invitations/{id}", o.handleWithdraw, ingress.Docs{Summary: "Withdraw an invitation; who has used it stays a peer, and the guests of a share leave",
			Params:    []ingress.Param{{Name: "id", In: "path", Type: "string", Required: true, Doc: "The ID of the invitation."}},
			Responses: []ingress.Response{{Status: http.StatusNoContent}}, Kinds: []fault.Kind{fault.NotFound}}),
		route(http.MethodGet, "/overlay/knocks", o.handleListKnocks, ingress.Docs{Summary: "List the strangers that dialled this node and were refused, the newest first",
			Responses: []ingress.Response{{Status: http.StatusOK, Body: client.KnockList{}}}}),
		route(http.MethodGet, "/overlay/nearby", o.handleListNearby, ingress.Docs{Summary: "List the nodes in the private networks of this one that are no peers of it",
			Description: "They announce themselves by DNS-SD, and this node listens if overlay.lan is set. What they say is not proved before a session is opened.",
			Responses:   []ingress.Response{{Status: http.StatusOK, Body: client.NearbyList{}}}}),
		route(http.MethodPost, "/overlay/knocks/{id}", o.handleAccept, ingress.Docs{Summary: "Accept a stranger that has knocked or is nearby: it is a peer from now on", Params: id,
			Responses: []ingress.Response{{Status: http.StatusCreated, Body: client.Peer{}}, {Status: http.StatusOK, Body: client.Peer{}, Doc: "It was already known."}},
			Kinds:     []fault.Kind{fault.Malformed, fault.QuotaExceeded}}),
		route(http.MethodDelete, "/overlay/knocks/{id}", o.handleForgetKnock, ingress.Docs{Summary: "Forget a stranger that has knocked; one that is nearby is not listed as long as it is there", Params: id,
			Responses: []ingress.Response{{Status: http.StatusNoContent}}, Kinds: []fault.Kind{fault.Malformed, fault.NotFound}}),
	}
}

func (o *Overlay) handleInvite(w http.ResponseWriter, r *http.Request) error {
	var request client.InvitationRequest
	if err := ingress.DecodeJSON(r, &request); err != nil {
		return err
	}
	made, err := o.Invite(r.Context(), request)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	return ingress.WriteJSON(w, http.StatusCreated, made)
}

// Invite makes an invitation. Before it is returned, the node can be reached at
// the addresses in it, and it is kept if anything is.
func (o *Overlay) Invite(ctx context.Context, request client.InvitationRequest) (client.Invitation, error) {
	const op = "overlay.invite"
	share := request.Object != nil
	ttl, uses, err := inviteBounds(request, share)
	if err != nil {
		return client.Invitation{}, err
	}
	if o.Addr() == nil {
		return client.Invitation{}, &fault.Error{Op: op, Kind: fault.NotReady, Detail: "the overlay of this node does not listen, so nobody could come",
			Next: "Run the node with --overlay ADDR, or with overlay.addr in its configuration."}
	}
	// It is entered first: the listener returns to loopback when there is none.
	now := time.Now()
	secret := invitation.NewSecret()
	open := openInvitation{Name: request.Name, Share: share, Local: request.Local, Made: now.UTC(), Expires: now.Add(ttl).UTC(), Uses: uses}
	if share {
		open.Object = *request.Object
	}
	if err := o.invitations.add(secret, open, now); err != nil {
		return client.Invitation{}, err
	}
	hash := hashSecret(secret)
	open.Hash = hash[:]
	opened := false
	if !request.Local {
		opened, err = o.openReach(ctx)
	}
	what := invitation.Invitation{Peer: o.ID(), Addrs: o.addrs(request.Local), Secret: secret, Name: request.Name, Share: share, Folder: request.Folder}
	if share {
		what.Object = *request.Object
	}
	made := open.shape()
	if err == nil {
		made.Invitation, made.Addrs, err = what.Encode()
	}
	if err == nil {
		err = o.savePeers(ctx)
	}
	if err != nil {
		o.invitations.withdraw(made.ID)
		return client.Invitation{}, err
	}
	made.Opened, made.Reach = opened, o.describeReach()
	return made, nil
}

// KeptObjects lists the objects of the shares that last.
func (o *Overlay) KeptObjects(context.Context) ([]b3.Address, error) {
	return o.invitations.objects(time.Now()), nil
}

// inviteBounds is for how long and for how many an invitation is.
func inviteBounds(request client.InvitationRequest, share bool) (ttl time.Duration, uses int, err error) {
	const op = "overlay.invite"
	ttl, uses = inviteTTL, inviteUses
	if share {
		ttl, uses = shareTTL, shareUses
	}
	if request.TTL != 0 {
		ttl = time.Duration(request.TTL) * time.Second
	}
	if request.Uses != 0 {
		uses = request.Uses
	}
	switch {
	case request.TTL < 0 || request.TTL > int64(maxTTL/time.Second):
		return 0, 0, fault.New(op, fault.Malformed, "ttl_s must be from 1 to %d seconds", int64(maxTTL/time.Second)).Advise("Set how long it lasts with --ttl, such as 1h.")
	case uses < 1 || uses > maxUses:
		return 0, 0, fault.New(op, fault.Malformed, "uses must be from 1 to %d", maxUses).Advise("Set how many nodes may use it with --uses.")
	case strings.ContainsFunc(request.Name, func(r rune) bool { return unicode.IsControl(r) || r == unicode.ReplacementChar }):
		return 0, 0, fault.New(op, fault.Malformed, "the name has control characters in it").Advise("Use a plain name, such as maps.")
	case request.Folder && !share:
		return 0, 0, fault.New(op, fault.Malformed, "folder is for a share, and there is no object").Advise("Give the address of the manifest as object.")
	}
	return ttl, uses, nil
}

func (o *Overlay) handleListInvitations(w http.ResponseWriter, _ *http.Request) error {
	list := client.InvitationList{Invitations: []client.Invitation{}}
	for _, one := range o.invitations.all(time.Now()) {
		list.Invitations = append(list.Invitations, one.shape())
	}
	return ingress.WriteJSON(w, http.StatusOK, list)
}

func (o *Overlay) handleWithdraw(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	if !o.invitations.withdraw(id) {
		return fault.New("overlay.invitations", fault.NotFound, "there is no invitation %q", id).Advise("See `micronode invite --list` for those that are open.")
	}
	if err := o.savePeers(r.Context()); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (o *Overlay) handleJoin(w http.ResponseWriter, r *http.Request) error {
	var request client.JoinRequest
	if err := ingress.DecodeJSON(r, &request); err != nil {
		return err
	}
	what, err := invitation.Parse(request.Invitation)
	if err != nil {
		return err
	}
	joined, err := o.Join(r.Context(), what)
	if err != nil {
		return err
	}
	return ingress.WriteJSON(w, http.StatusOK, joined)
}

// Join makes this node and the one that invites it known to each other. It
// returns when they are connected; otherwise everything is as it was before.
func (o *Overlay) Join(ctx context.Context, with invitation.Invitation) (client.Joined, error) {
	const op = "overlay.join"
	switch {
	case with.Peer == o.ID():
		return client.Joined{}, &fault.Error{Op: op, Kind: fault.Malformed, Detail: "this node has made that invitation itself",
			Next: "Type it on another node; on this machine, one that runs with --socket NAME."}
	case o.contacts.count() >= maxContacts:
		return client.Joined{}, &fault.Error{Op: op, Kind: fault.QuotaExceeded, Detail: "the maximum number of peers is reached", Next: "Remove one with `micronode peers rm`."}
	}
	contact, source := Contact{ID: with.Peer, Addrs: with.Addrs}, fromOperator
	if with.Share {
		source = fromShares
	}
	undo := o.contacts.addJoined(source, contact, with.Secret.Token())
	if o.sessions.Find(with.Peer) == nil {
		o.sessions.Redial(with.Peer) // it may be waiting after an earlier refusal
	}
	err := o.awaitSession(ctx, with)
	if err == nil && !with.Share {
		err = o.savePeers(ctx)
	}
	if err != nil {
		undo()
		return client.Joined{}, err
	}
	o.knocks.forget(with.Peer)
	o.allowIntroduced(with.Peer)
	opened := false
	if o.needsReach(time.Now()) {
		opened, _ = o.openReach(ctx) // the two are connected all the same; the reason is where the node listens
	}
	state := o.sessions.PeerOf(contact)
	joined := client.Joined{ID: state.ID.String(), Addr: state.Addr, PQ: state.PQ, Name: with.Name, Kept: !with.Share && o.keepsPeers(), Share: with.Share, Folder: with.Folder}
	if opened {
		joined.Reach = o.describeReach()
	}
	if with.Share {
		joined.Object = &with.Object
	}
	return joined, nil
}

// awaitSession waits for a session with the node that invites this one, or for
// the reason why there will be none.
func (o *Overlay) awaitSession(ctx context.Context, with invitation.Invitation) error {
	const op = "overlay.join"
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	var last error
	for {
		if o.sessions.Find(with.Peer) != nil {
			return nil
		}
		if err := o.sessions.DialError(with.Peer); err != nil {
			last = err
		}
		if session.IsRefusal(last) {
			return &fault.Error{Op: op, Kind: fault.Unauthorized, Err: last,
				Detail: "the node at " + strings.Join(with.Addrs, ", ") + " does not accept the invitation: it has expired, was used or withdrawn, or the node has restarted",
				Next:   "Ask there for a new one: micronode invite."}
		}
		if err := flow.Sleep(ctx, joinPoll); err != nil {
			break
		}
	}
	return &fault.Error{Op: op, Kind: fault.NoRoute, Err: last, Detail: fmt.Sprintf("no session with the other node within %s, at %s", joinTimeout, strings.Join(with.Addrs, ", ")),
		Next: "Either it does not run any more, or its addresses cannot be reached from here: check that the two are in one network and that no firewall is between them."}
}

func (o *Overlay) handleListKnocks(w http.ResponseWriter, _ *http.Request) error {
	return ingress.WriteJSON(w, http.StatusOK, client.KnockList{Knocks: o.Knocks()})
}

func (o *Overlay) handleAccept(w http.ResponseWriter, r *http.Request) error {
	id, err := oap.ParsePeerID(r.PathValue("id"))
	if err != nil {
		return err
	}
	created, err := o.Accept(id)
	if err == nil {
		err = o.savePeers(r.Context())
	}
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return ingress.WriteJSON(w, status, o.sessions.PeerOf(Contact{ID: id}))
}

func (o *Overlay) handleForgetKnock(w http.ResponseWriter, r *http.Request) error {
	id, err := oap.ParsePeerID(r.PathValue("id"))
	if err != nil {
		return err
	}
	if hidden := o.hideNearby(id); !o.knocks.forget(id) && !hidden {
		return fault.New("overlay.knocks", fault.NotFound, "%s has not knocked, and is not nearby", id).Advise("See `micronode peers` for those that have, or are.")
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
