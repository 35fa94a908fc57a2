package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"micronode/b3"
	"micronode/fault"
)

// InvitationRequest is what POST /overlay/invitations takes. With an object it is
// a share: it lets others in for as long as it lasts, to fetch that.
type InvitationRequest struct {
	TTL    int64       `json:"ttl_s,omitempty"`  // seconds; 0: an hour, of a share a day
	Uses   int         `json:"uses,omitempty"`   // by how many nodes; 0: one, of a share a hundred
	Name   string      `json:"name,omitempty"`   // of what the node offers
	Local  bool        `json:"local,omitempty"`  // for nodes on the same machine only
	Object *b3.Address `json:"object,omitempty"` // what to fetch
	Folder bool        `json:"folder,omitempty"` // it is the manifest of a folder
}

// Invitation is an invitation, or a share. The string is in the answer that made
// it, and nowhere else.
type Invitation struct {
	Invitation string     `json:"invitation,omitempty"`
	ID         string     `json:"id"`
	Name       string     `json:"name,omitempty"`
	Share      bool       `json:"share,omitempty"`
	Object     b3.Address `json:"object,omitzero"` // that is shared
	Expires    time.Time  `json:"expires"`
	Uses       int        `json:"uses"`
	UsedBy     []string   `json:"used_by"`          // peer IDs
	Addrs      []string   `json:"addrs,omitempty"`  // of the node, as they are in the string
	Opened     bool       `json:"opened,omitempty"` // the overlay listens beyond this machine now, and did not before
	Reach      string     `json:"reach,omitempty"`  // from where the node can be reached, in words
}

// InvitationList is the answer of GET /overlay/invitations.
type InvitationList struct {
	Invitations []Invitation `json:"invitations"`
}

// JoinRequest is what POST /overlay/join takes.
type JoinRequest struct {
	Invitation string `json:"invitation"`
}

// Joined is what was agreed with the node that made an invitation.
type Joined struct {
	ID     string      `json:"id"`
	Addr   string      `json:"addr"`
	PQ     bool        `json:"pq"`
	Name   string      `json:"name,omitempty"` // of what that node offers: name:NAME@ID
	Kept   bool        `json:"kept"`           // the two stay acquainted after a restart of this node
	Share  bool        `json:"share,omitempty"`
	Object *b3.Address `json:"object,omitempty"`
	Folder bool        `json:"folder,omitempty"`
	Reach  string      `json:"reach,omitempty"` // where the overlay listens from now on, so that other peers of that node reach this one; empty if nothing has changed
}

// Knock is a stranger that dialled the node and was refused.
type Knock struct {
	ID     string    `json:"id"`
	Addr   string    `json:"addr"` // from where
	First  time.Time `json:"first"`
	Last   time.Time `json:"last"`
	Count  int       `json:"count"`
	Accept string    `json:"accept"` // the command that lets it in
}

// Nearby is a node in a private network of this one that is no peer of it. It says
// so itself; a session proves it.
type Nearby struct {
	ID     string    `json:"id"`
	Addrs  []string  `json:"addrs"`
	First  time.Time `json:"first"`
	Last   time.Time `json:"last"`
	Accept string    `json:"accept"` // the command that accepts it
}

// NearbyList is the answer of GET /overlay/nearby.
type NearbyList struct {
	Nearby []Nearby `json:"nearby"`
}

// KnockList is the answer of GET /overlay/knocks.
type KnockList struct {
	Knocks []Knock `json:"knocks"`
}

const (
	invitationsPath = "/overlay/invitations"
	joinPath        = "/overlay/join"
	knocksPath      = "/overlay/knocks"
	nearbyPath      = "/overlay/nearby"
)

// Invite makes an invitation, or a share. It requires the scope admin.
func (c *Client) Invite(ctx context.Context, request InvitationRequest) (Invitation, error) {
	var answer Invitation
	err := c.newCall(ctx, "client.invite", http.MethodPost, invitationsPath).doJSON(ctx, request, &answer)
	return answer, err
}

// Invitations lists the invitations of the node that have not expired. It requires
// the scope admin.
func (c *Client) Invitations(ctx context.Context) ([]Invitation, error) {
	var answer InvitationList
	err := c.newCall(ctx, "client.invitations", http.MethodGet, invitationsPath).doJSON(ctx, nil, &answer)
	return answer.Invitations, err
}

// Withdraw withdraws an invitation by its ID. It requires the scope admin.
func (c *Client) Withdraw(ctx context.Context, id string) error {
	k := c.newCall(ctx, "client.withdraw", http.MethodDelete, invitationsPath+"/"+url.PathEscape(id))
	if isUnroutable(id) {
		return fault.New(k.op, fault.Malformed, "%q is not the ID of an invitation", id).Advise("Give an ID as Invitations returns it.")
	}
	err := k.doJSON(ctx, nil, nil)
	if k.maybeApplied && fault.KindOf(err) == fault.NotFound {
		return nil // a try whose answer was lost has done it
	}
	return err
}

// Join makes the node join the one that made an invitation, or use a share. One
// node uses an invitation once, however often it is told to. It requires the scope
// admin.
func (c *Client) Join(ctx context.Context, invitation string) (Joined, error) {
	k := c.newCall(ctx, "client.join", http.MethodPost, joinPath)
	k.repeatable = true
	var answer Joined
	err := k.doJSON(ctx, JoinRequest{Invitation: invitation}, &answer)
	return answer, err
}

// Knocks lists the strangers that dialled the node and were refused. It requires
// the scope admin.
func (c *Client) Knocks(ctx context.Context) ([]Knock, error) {
	var answer KnockList
	err := c.newCall(ctx, "client.knocks", http.MethodGet, knocksPath).doJSON(ctx, nil, &answer)
	return answer.Knocks, err
}

// Nearby lists the nodes in private networks that are no peers of the node. It
// requires the scope admin.
func (c *Client) Nearby(ctx context.Context) ([]Nearby, error) {
	var answer NearbyList
	err := c.newCall(ctx, "client.nearby", http.MethodGet, nearbyPath).doJSON(ctx, nil, &answer)
	return answer.Nearby, err
}

// AcceptKnock makes a stranger a peer of the node, whether it has knocked or will.
// It requires the scope admin.
func (c *Client) AcceptKnock(ctx context.Context, id string) (Peer, error) {
	k := c.newCall(ctx, "client.acceptknock", http.MethodPost, knocksPath+"/"+url.PathEscape(id))
	k.repeatable = true
	if isUnroutable(id) {
		return Peer{}, fault.New(k.op, fault.Malformed, "%q is not a peer ID", id).Advise("Give an ID as Knocks returns it.")
	}
	var answer Peer
	err := k.doJSON(ctx, nil, &answer)
	return answer, err
}

// ForgetKnock forgets a stranger that has knocked. It requires the scope admin.
func (c *Client) ForgetKnock(ctx context.Context, id string) error {
	k := c.newCall(ctx, "client.forgetknock", http.MethodDelete, knocksPath+"/"+url.PathEscape(id))
	if isUnroutable(id) {
		return fault.New(k.op, fault.Malformed, "%q is not a peer ID", id).Advise("Give an ID as Knocks returns it.")
	}
	err := k.doJSON(ctx, nil, nil)
	if k.maybeApplied && fault.KindOf(err) == fault.NotFound {
		return nil // a try whose answer was lost has done it
	}
	return err
}
