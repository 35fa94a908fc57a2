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

// Authority mints tokens under a root and verifies them. It is safe for
// concurrent use.
type Authority struct {
	root    *Root        // set at construction
	meters  *meters      // set at construction; has a lock of its own
	revoked *revocations // set at construction; has a lock of its own
}

// Request is an operation to be authorised.
type Request struct {
	Scope Scope // the needed scope; Any for no particular one

	// AllowNarrowed accepts a token whose scope is narrowed to one thing,
	// whichever it is. Use it where the thing is not known yet; check again
	// with the narrowed scope when it is.
	AllowNarrowed bool

	// Path is the path by which the request was routed, decoded. Topic is what
	// it is about, if it is about a topic. ClientIP is the address of the
	// connection. A token with a caveat on one of them does not cover a
	// request without it.
	Path     string
	Topic    string
	ClientIP netip.Addr

	Now time.Time // the zero time stands for the present

	continuing bool // it was accepted before; only whether it may go on is checked
}

// client is the address in the form of the caveats' networks.
func (r Request) client() netip.Addr { return r.ClientIP.Unmap().WithZone("") }

// NewAuthority makes an authority. The root may be shared and is not closed by
// it.
func NewAuthority(root *Root) *Authority {
	return &Authority{root: root, meters: newMeters(maxMeters, maxMetersPerToken), revoked: &revocations{until: map[TokenID]time.Time{}}}
}

// Mint makes a token. At least one scope must be given: a capability for
// everything has the scope Admin.
func (a *Authority) Mint(caveats Caveats) (string, error) { return a.mint(idVersion, caveats) }

// MintVoucher makes a token for one call between processes that share the root.
// It can begin something until it expires, and what was begun with it may go
// on: the caller has its own reasons to end that, such as the token of its
// client. Narrowing a token cannot make one.
func (a *Authority) MintVoucher(caveats Caveats) (string, error) { return a.mint(idVoucher, caveats) }

func (a *Authority) mint(kind byte, caveats Caveats) (string, error) {
	const op = "capability.mint"
	if caveats.Scopes == nil {
		return "", scopeRequired(op)
	}
	conditions, err := caveats.conditions()
	if err != nil {
		return "", fault.Wrap(op, err)
	}
	id := slices.Concat([]byte{kind}, a.root.id[:], make([]byte, nonceSize))
	rand.Read(id[idSize-nonceSize:]) // never fails: the runtime crashes the program first
	var m *macaroon.Macaroon
	err = a.root.use(op, func(key []byte) (err error) {
		m, err = macaroon.New(key, id, "", macaroon.V2)
		return err
	})
	if err != nil {
		return "", fault.Wrap(op, err)
	}
	return addCaveats(op, m, conditions)
}

// MintFrom makes a token from a caller's token. The new token is its parent,
// narrowed: it has every caveat of its parent, so it allows nothing that its
// parent does not, and it ends with its parent. Scopes that the parent does not
// have are rejected rather than left out.
func (a *Authority) MintFrom(parent string, caveats Caveats) (string, error) {
	const op = "capability.mint"
	if caveats.Scopes == nil {
		return "", scopeRequired(op)
	}
	conditions, err := caveats.conditions()
	if err != nil {
		return "", fault.Wrap(op, err)
	}
	m, err := a.authenticate(op, parent, time.Now())
	if err != nil {
		return "", err
	}
	has, err := caveatsOf(op, m)
	if err != nil {
		return "", err
	}
	for _, scope := range caveats.Scopes {
		if slices.ContainsFunc(has, func(c Caveats) bool { return c.lacksScope(scope) }) {
			return "", fault.New(op, fault.Forbidden, "the requesting token does not have the scope %s", quote(string(scope))).
				Advise("Ask for scopes that it has (`micronode token show` lists them), or ask with another token.")
		}
	}
	return addCaveats(op, m, conditions)
}

// Verify decides whether a token covers a request. Only a request that is
// covered in every other way spends from a rate.
func (a *Authority) Verify(token string, request Request) error {
	const op = "capability.verify"
	m, caveats, err := a.check(op, token, &request)
	if err != nil {
		return err
	}
	return a.meters.take(op, request.Now, m, caveats)
}

// Check is Verify without spending from a rate. It is for checking again, at
// any time, whether something that a token began may go on: the token may have
// expired or been revoked since. What a voucher began may go on after the
// voucher has expired.
func (a *Authority) Check(token string, request Request) error {
	request.continuing = true
	_, _, err := a.check("capability.check", token, &request)
	return err
}

// RemainingScopes is what a token leaves of a scope: the scope itself, or, if
// it was narrowed, the scopes that it was narrowed to. Use it to pass a request
// on with no more rights than the token has.
func (a *Authority) RemainingScopes(token string, scope Scope) ([]Scope, error) {
	const op = "capability.left"
	m, err := a.authenticate(op, token, time.Now())
	if err != nil {
		return nil, err
	}
	caveats, err := caveatsOf(op, m)
	if err != nil {
		return nil, err
	}
	left := remainingScopes(caveats, scope)
	if len(left) == 0 {
		return nil, insufficient(op, Request{Scope: scope}, scopeMissing(scope))
	}
	return left, nil
}

// check decides whether a token covers a request, apart from its rates.
func (a *Authority) check(op, token string, request *Request) (*macaroon.Macaroon, []Caveats, error) {
	if request.Scope != Any && !request.Scope.known() {
		return nil, nil, fault.New(op, fault.Internal, "the scope of the route does not exist")
	}
	if request.Now.IsZero() {
		request.Now = time.Now()
	}
	m, err := a.authenticate(op, token, request.Now)
	if err != nil {
		return nil, nil, err
	}
	caveats, err := caveatsOf(op, m)
	if err != nil {
		return nil, nil, err
	}
	lasting := *request
	if request.continuing && m.Id()[0] == idVoucher {
		lasting.Now = time.Time{} // before every expiry
	}
	return m, caveats, covers(op, caveats, lasting)
}

// authenticate reads a token and checks that it is genuine, and that neither it
// nor one that it was made from has been revoked.
func (a *Authority) authenticate(op, token string, now time.Time) (*macaroon.Macaroon, error) {
	m, err := a.verifySignature(op, token)
	if err == nil && a.revoked.contains(m, now) {
		return nil, unauthorized(op, "the token was revoked")
	}
	return m, err
}

// verifySignature reads a token and checks that it was minted under our root
// and only narrowed since.
func (a *Authority) verifySignature(op, token string) (*macaroon.Macaroon, error) {
	m, why := parse(token)
	if why != noReason {
		return nil, unauthorized(op, "%s", why)
	}
	if !bytes.Equal(rootOf(m), a.root.id[:]) {
		return nil, unauthorized(op, "the token was minted under another root; in amnesia mode each start of a node creates a new one")
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

func scopeRequired(op string) error {
	return fault.New(op, fault.Malformed, "a token needs at least one scope").
		Advise("Name what it is for: " + join(scopes, ", ") + ". The scope admin implies all others. " + howToNarrow)
}

func unauthorized(op, format string, args ...any) error {
	return fault.New(op, fault.Unauthorized, format, args...).
		Advise("Get a token from the operator (`micronode token mint --scope … --ttl …`) and send it as Authorization: Bearer, or use the local socket.")
}

// caveatsOf reads the conditions of an authentic token. The first one is the
// scope that it was minted with; without it, the token is not one of Mint's.
func caveatsOf(op string, m *macaroon.Macaroon) ([]Caveats, error) {
	list := make([]Caveats, len(m.Caveats()))
	for i, caveat := range m.Caveats() {
		c, known := readCondition(string(caveat.Id))
		if !known {
			return nil, fault.New(op, fault.Forbidden, "the token has a caveat that this node does not know").
				Advise("Use the token without that caveat, or a node of the version that wrote it.")
		}
		list[i] = c
	}
	if len(list) == 0 || list[0].Scopes == nil {
		return nil, unauthorized(op, "the token does not begin with a scope")
	}
	return list, nil
}

// covers checks every caveat against a request. Expiry comes first: an expired
// token is invalid, whatever it covered.
func covers(op string, caveats []Caveats, request Request) error {
	for _, c := range caveats {
		if c.expired(request.Now) {
			return unauthorized(op, "the token expired at %s", c.Expires.Format(time.RFC3339))
		}
	}
	if request.AllowNarrowed && len(remainingScopes(caveats, request.Scope)) == 0 {
		return insufficient(op, request, scopeMissing(request.Scope))
	}
	for _, c := range caveats {
		if lack := c.missing(request); lack != "" {
			return insufficient(op, request, lack)
		}
	}
	return nil
}

func insufficient(op string, request Request, lack string) error {
	mint := "micronode token mint"
	if request.Scope != Any {
		mint += " --scope " + string(request.Scope)
	}
	return fault.New(op, fault.Forbidden, "%s", lack).
		Advise("Ask the operator for a token that covers this request (`" + mint + "`); caveats cannot be taken off this one.")
}
