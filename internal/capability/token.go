package capability

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	"gopkg.in/macaroon.v2"

	"micronode/fault"
	"micronode/internal/tokentext"
)

// Prefix begins every token, so that people, log filters and scanners for
// leaked secrets recognise one. The 1 is the version of the format.
const Prefix = tokentext.Prefix

// The limits of a token. Both are checked before any cryptography.
const (
	MaxToken   = 4096 // bytes of text
	MaxCaveats = 32
)

// The identifier of a token: a version, the ID of the root it was minted
// under, and a random name of its own, which keeps its meters apart from those
// of others.
const (
	idVersion = 1
	idVoucher = idVersion | 0x80 // of one that MintVoucher has made
	nonceSize = 16
	idSize    = 1 + rootIDSize + nonceSize
)

// reason is why a text is not a usable token. It never holds any of the text.
type reason string

const (
	noReason    reason = ""
	absent      reason = "no token was given"
	foreign     reason = "this is not a micronode token; one begins with " + Prefix
	tooLong     reason = "the token is longer than 4096 bytes"
	tooMany     reason = "the token has more than 32 caveats"
	damaged     reason = "the token is damaged"
	unsupported reason = "the token is of a kind that this version does not know"
)

// parse reads a token. There is exactly one text for a token: a text that does
// not re-encode to itself is rejected, so that nothing outside the signature
// can be varied.
func parse(text string) (*macaroon.Macaroon, reason) {
	switch {
	case text == "":
		return nil, absent
	case len(text) > MaxToken:
		return nil, tooLong
	case !strings.HasPrefix(text, Prefix):
		return nil, foreign
	}
	data, err := base64.RawURLEncoding.DecodeString(text[len(Prefix):])
	if err != nil || len(data) == 0 || data[0] != byte(macaroon.V2) {
		return nil, damaged
	}
	var m macaroon.Macaroon
	if m.UnmarshalBinary(data) != nil {
		return nil, damaged
	}
	again, why := encode(&m)
	switch {
	case why != noReason:
		return nil, why
	case again != text:
		return nil, damaged
	case m.Location() != "" || slices.ContainsFunc(m.Caveats(), func(c macaroon.Caveat) bool { return c.VerificationId != nil }):
		return nil, unsupported
	case len(m.Id()) != idSize || m.Id()[0] != idVersion && m.Id()[0] != idVoucher:
		return nil, unsupported
	}
	return &m, noReason
}

// encode writes a token, if it stays within the bounds.
func encode(m *macaroon.Macaroon) (string, reason) {
	if len(m.Caveats()) > MaxCaveats {
		return "", tooMany
	}
	data, err := m.MarshalBinary()
	if err != nil {
		return "", damaged
	}
	text := Prefix + base64.RawURLEncoding.EncodeToString(data)
	if len(text) > MaxToken {
		return "", tooLong
	}
	return text, noReason
}

// Attenuate adds caveats to a token and returns the new one; the old one stays
// valid. It needs neither the key nor the node, so it does not know whether the
// token is valid.
func Attenuate(token string, more Caveats) (string, error) {
	const op = "capability.attenuate"
	m, why := parse(token)
	if why != noReason {
		return "", fault.New(op, fault.Malformed, "%s", why)
	}
	conditions, err := more.conditions()
	if err != nil {
		return "", fault.Wrap(op, err)
	}
	if len(conditions) == 0 {
		return "", fault.New(op, fault.Malformed, "no caveat was given to narrow the token").
			Advise("Give at least one of scope, ttl, path, topic, client or rate.")
	}
	return addCaveats(op, m, conditions)
}

// addCaveats adds conditions to a macaroon and writes it out.
func addCaveats(op string, m *macaroon.Macaroon, conditions []string) (string, error) {
	for _, condition := range conditions {
		if err := m.AddFirstPartyCaveat([]byte(condition)); err != nil {
			return "", fault.Wrap(op, err)
		}
	}
	text, why := encode(m)
	if why != noReason {
		return "", fault.New(op, fault.Malformed, "%s", why).
			Advise("Use fewer or shorter caveats, or mint a new token with just what is needed.")
	}
	return text, nil
}

// Summary is what a token states about itself, for people. It holds nothing by
// which the token could be used.
type Summary struct {
	ID      string    `json:"id"`                // for revoking it
	Root    string    `json:"root"`              // the ID of the root it was minted under
	Scopes  []Scope   `json:"scopes"`            // what all its scope caveats together leave
	Expires time.Time `json:"expires,omitzero"`  // the earliest of its expiries
	Caveats []string  `json:"caveats"`           // every caveat, in order
	Unknown int       `json:"unknown,omitempty"` // caveats that no node of this version accepts
}

// Inspect reads a token without verifying it: it may be forged.
func Inspect(token string) (Summary, error) {
	m, why := parse(token)
	if why != noReason {
		return Summary{}, fault.New("capability.inspect", fault.Malformed, "%s", why)
	}
	s := Summary{ID: idOf(m).String(), Root: fmt.Sprintf("%x", rootOf(m)), Scopes: []Scope{}, Caveats: []string{}}
	var caveats []Caveats
	for _, caveat := range m.Caveats() {
		c, known := readCondition(string(caveat.Id))
		if !known {
			s.Unknown++
			s.Caveats = append(s.Caveats, "unknown "+quote(string(caveat.Id)))
			continue
		}
		s.Caveats = append(s.Caveats, string(caveat.Id))
		caveats = append(caveats, c)
		if !c.Expires.IsZero() && (s.Expires.IsZero() || c.Expires.Before(s.Expires)) {
			s.Expires = c.Expires
		}
	}
	for _, scope := range scopes {
		s.Scopes = append(s.Scopes, remainingScopes(caveats, scope)...)
	}
	return s, nil
}

// Family names the token that a token was narrowed from in the first place,
// without revealing anything by which it could be used: all that one minted
// token was narrowed to have the same family. It is empty for what is no token
// of ours, and for a voucher, which stands for one call. It verifies nothing.
func Family(token string) string {
	m, why := parse(token)
	if why != noReason || m.Id()[0] == idVoucher {
		return ""
	}
	return chainHashes(m)[0].tokenID().String()
}

// rootOf is the ID of the root that a token names.
func rootOf(m *macaroon.Macaroon) []byte { return bytes.Clone(m.Id()[1 : 1+rootIDSize]) }
