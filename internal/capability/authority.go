package capability

import (
	"bytes"
	"crypto/rand"
	"net/netip"
	"slices"
	"time"

	"gopkg.in/macaroon.v2"

	"micronode/fault"
)

// Authority mints tokens under a root and verifies them. It is safe for use by
// many at once.
type Authority struct {
	root   *Root   // set at construction
	meters *meters // set at construction; has a lock of its own
}

// Request is what somebody wants to do.
type Request struct {
	Scope Scope // what it takes; Any for nothing in particular

	// Path is the path by which the request was routed, decoded. Topic is what
	// it is about, if it is about a topic. ClientIP is the address of the
	// connection. A token with a caveat on one of them does not cover a
	// request without it.
	Path     string
	Topic    string
	ClientIP netip.Addr

	Now time.Time // the zero time stands for the present
}

// client is the address in the form in which networks are written.
func (r Request) client() netip.Addr { return r.ClientIP.Unmap().WithZone("") }

// NewAuthority makes an authority. The root may be shared and is not closed by
// it.
func NewAuthority(root *Root) *Authority {
	return &Authority{root: root, meters: newMeters(maxMeters, maxFamily)}
}

// Mint makes a token. At least one scope must be given: a capability for
// everything is asked for by name, as Admin.
func (a *Authority) Mint(caveats Caveats) (string, error) {
	const op = "capability.mint"
	if caveats.Scopes == nil {
		err := fault.New(op, fault.Malformed, "a token needs at least one scope")
		err.Next = "Name what it is for: " + join(scopes, ", ") + ". The scope admin implies all others."
		return "", err
	}
	conditions, err := caveats.conditions()
	if err != nil {
		return "", fault.Wrap(op, err)
	}
	id := slices.Concat([]byte{idVersion}, a.root.id[:], make([]byte, nonceSize))
	rand.Read(id[idSize-nonceSize:]) // never fails: the runtime crashes the program first
	var m *macaroon.Macaroon
	err = a.root.use(op, func(key []byte) (err error) {
		m, err = macaroon.New(key, id, "", macaroon.V2)
		return err
	})
	if err != nil {
		return "", fault.Wrap(op, err)
	}
	return bind(op, m, conditions)
}

// Verify decides whether a token covers a request. Only a request that is
// covered in every other way is taken from a rate.
func (a *Authority) Verify(token string, request Request) error {
	const op = "capability.verify"
	if request.Scope != Any && !slices.Contains(scopes, request.Scope) {
		return fault.New(op, fault.Internal, "the route names no scope that exists")
	}
	if request.Now.IsZero() {
		request.Now = time.Now()
	}
	m, err := a.authentic(op, token)
	if err != nil {
		return err
	}
	caveats, err := caveatsOf(op, m)
	if err != nil {
		return err
	}
	if err := covers(op, caveats, request); err != nil {
		return err
	}
	return a.meters.take(op, request.Now, m, caveats)
}

// authentic reads a token and checks that it was minted under our root and
// only narrowed since.
func (a *Authority) authentic(op, token string) (*macaroon.Macaroon, error) {
	m, why := parse(token)
	if why != fine {
		return nil, unauthorized(op, "%s", why)
	}
	if !bytes.Equal(rootOf(m), a.root.id[:]) {
		return nil, unauthorized(op, "the token was minted under another root; in amnesia each start of a node draws a new one")
	}
	forged := false
	err := a.root.use(op, func(key []byte) error {
		_, err := m.VerifySignature(key, nil)
		forged = err != nil
		return nil
	})
	if err != nil {
		return nil, err
	}
	if forged {
		return nil, unauthorized(op, "the token does not verify: it was altered, or not minted here")
	}
	return m, nil
}

func unauthorized(op, format string, args ...any) error {
	err := fault.New(op, fault.Unauthorized, format, args...)
	err.Next = "Get a token from the operator (`micronode token mint --scope … --ttl …`) and send it as Authorization: Bearer, or use the local socket."
	return err
}

// caveatsOf reads the conditions of an authentic token. The first one is the
// scope that it was minted with; without it, the token is not one of Mint's.
func caveatsOf(op string, m *macaroon.Macaroon) ([]Caveats, error) {
	list := make([]Caveats, len(m.Caveats()))
	for i, caveat := range m.Caveats() {
		c, known := readCondition(string(caveat.Id))
		if !known {
			err := fault.New(op, fault.Forbidden, "the token has a caveat that this node does not know, so it cannot be honoured")
			err.Next = "Use the token without that caveat, or a node of the version that wrote it."
			return nil, err
		}
		list[i] = c
	}
	if len(list) == 0 || list[0].Scopes == nil {
		return nil, unauthorized(op, "the token does not begin with a scope")
	}
	return list, nil
}

// covers checks every caveat against a request. Expiry comes first: an expired
// token is no token, whatever it covered.
func covers(op string, caveats []Caveats, request Request) error {
	for _, c := range caveats {
		if c.expired(request.Now) {
			return unauthorized(op, "the token expired at %s", c.Expires.Format(time.RFC3339))
		}
	}
	for _, c := range caveats {
		if lack := c.lacks(request); lack != "" {
			err := fault.New(op, fault.Forbidden, "%s", lack)
			err.Next = "Ask the operator for a token that covers this request (`micronode token mint`); caveats cannot be taken off this one."
			return err
		}
	}
	return nil
}
