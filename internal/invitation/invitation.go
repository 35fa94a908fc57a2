// Package invitation is the string by which one node lets another in: the
// addresses of a node, its ID, and a secret that the node accepts once or a few
// times. It is short enough to be read out, typed and shown as a QR code. A share
// is an invitation that also says what to fetch.
//
// The package reads and writes the string. What the secret allows, for how long
// and how often is known to the node that made it, and to nobody else: the string
// has no time in it, so that clocks may differ. Nothing here is signed: the ID
// says which key must answer at the addresses, and whoever holds the string may
// use it.
package invitation

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/oap"
)

// Prefix begins every invitation. It begins as every capability does, so that
// logs and errors hide an invitation as they hide a token; no token goes on with
// an i.
const Prefix = "mn1_i"

// The limits of the string: of an invitation, and of a share, which has an
// address of 32 bytes more.
const (
	MaxText  = 120
	maxBytes = (MaxText - len(Prefix)) * 3 / 4
	MaxName  = 32 // bytes; a name may take the place of all addresses but one
)

// secretSize makes a secret that nobody guesses: each guess costs a handshake.
const secretSize = 10

// Secret is what the node that made the invitation recognises.
type Secret [secretSize]byte

// NewSecret draws a secret.
func NewSecret() (s Secret) {
	_, _ = rand.Read(s[:]) // it never fails
	return s
}

// Token is the secret as it is shown to the node, in place of a capability.
func (s Secret) Token() string { return Prefix + base64.RawURLEncoding.EncodeToString(s[:]) }

// ParseToken reads what Token writes.
func ParseToken(text string) (s Secret, ok bool) {
	rest, found := strings.CutPrefix(text, Prefix)
	raw, err := base64.RawURLEncoding.Strict().DecodeString(rest)
	if !found || err != nil || len(raw) != len(s) {
		return s, false
	}
	return Secret(raw), true
}

// Invitation is what the string says.
type Invitation struct {
	Peer   oap.PeerID // the node that made it
	Addrs  []string   // HOST:PORT of its overlay, the best first
	Secret Secret
	Name   string // of what the node offers; may be empty

	// Of a share: what to fetch, and whether it is a folder.
	Share  bool
	Object b3.Address
	Folder bool
}

// The first byte: a version, and what else there is.
const (
	version    = 1 << 4
	hasObject  = 1
	isFolder   = 2
	maxAddress = 8
)

// The kinds of addresses; of a host name it is followed by the length.
const (
	kindIPv4 = 4
	kindIPv6 = 6
	kindHost = 'h'
)

// Encode writes the invitation, and returns which addresses are in it. Of the addresses it has as many as there is room
// for beside the name, and at least one; a name for which there is no room is an
// error, as is an address that is not HOST:PORT.
func (i Invitation) Encode() (text string, addrs []string, err error) {
	const op = "invitation.encode"
	room := maxBytes
	out := []byte{version}
	out = append(out, i.Peer[:]...)
	out = append(out, i.Secret[:]...)
	if i.Share {
		room += len(i.Object)
		out[0] |= hasObject
		out = append(out, i.Object[:]...)
	}
	if i.Folder {
		out[0] |= isFolder
	}
	if len(i.Name) > MaxName {
		return "", nil, fault.New(op, fault.Malformed, "the name has %d bytes; an invitation has room for %d", len(i.Name), MaxName).
			Advise("Use a shorter name, or none: the other node can be told the name when it has joined.")
	}
	count := len(out)
	out = append(out, 0)
	room -= len(i.Name) + checkSize
	for _, one := range i.Addrs {
		next, ok := appendAddr(out, one)
		if !ok {
			return "", nil, fault.New(op, fault.Malformed, "%q is not HOST:PORT", one).Advise("Write addresses of the overlay as 192.0.2.1:9500 or node.example:9500.")
		}
		if len(next) <= room && len(addrs) < maxAddress {
			out, addrs = next, append(addrs, one)
		}
	}
	if len(addrs) == 0 {
		return "", nil, fault.New(op, fault.Malformed, "there is no room for an address of this node beside the name").
			Advise("Use a shorter name, or set node.advertise to a shorter address.")
	}
	out[count] = byte(len(addrs))
	out = append(out, i.Name...)
	out = append(out, check(out)...)
	return Prefix + base64.RawURLEncoding.EncodeToString(out), addrs, nil
}

// checkSize is how much of the hash of the string ends it: enough to tell a
// string that was cut or mistyped from one that is refused.
const checkSize = 2

func check(body []byte) []byte {
	sum := b3.Of(body)
	return sum[:checkSize]
}

func appendAddr(to []byte, addr string) ([]byte, bool) {
	host, text, err := net.SplitHostPort(addr)
	port, bad := strconv.ParseUint(text, 10, 16)
	if err != nil || bad != nil || port == 0 || host == "" || len(host) > 255 {
		return nil, false
	}
	to = to[:len(to):len(to)]
	switch ip, err := netip.ParseAddr(host); {
	case err != nil:
		to = append(append(to, kindHost, byte(len(host))), host...)
	case ip.Is4():
		to = append(append(to, kindIPv4), ip.AsSlice()...)
	case ip.Zone() != "":
		return nil, false // it means something on this machine only
	default:
		to = append(append(to, kindIPv6), ip.AsSlice()...)
	}
	return binary.BigEndian.AppendUint16(to, uint16(port)), true
}

// Parse reads an invitation. A text around it, such as the command that it was
// printed with, is ignored.
func Parse(text string) (Invitation, error) {
	fields := strings.Fields(text)
	for _, one := range fields {
		if strings.HasPrefix(one, Prefix) {
			return parse(one)
		}
	}
	return Invitation{}, malformed("an invitation begins with " + Prefix)
}

// Contains reports whether a text has an invitation in it, whole or not.
func Contains(text string) bool { return strings.Contains(text, Prefix) }

func parse(text string) (i Invitation, err error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(strings.TrimPrefix(text, Prefix))
	const fixed = 1 + len(i.Peer) + len(i.Secret) + 1 + checkSize
	if err != nil || len(raw) < fixed || len(raw) > maxBytes+len(i.Object) {
		return i, malformed("it was cut off, or a character was lost")
	}
	body, sum := raw[:len(raw)-checkSize], raw[len(raw)-checkSize:]
	if string(check(body)) != string(sum) {
		return i, malformed("it was cut off, or a character is wrong")
	}
	flags := body[0] &^ 0xf0
	if body[0]&0xf0 != version || flags&^(hasObject|isFolder) != 0 {
		return i, malformed("it was made by a newer version of micronode")
	}
	r := reader{rest: body[1:]}
	copy(i.Peer[:], r.take(len(i.Peer)))
	copy(i.Secret[:], r.take(len(i.Secret)))
	if i.Share, i.Folder = flags&hasObject != 0, flags&isFolder != 0; i.Share {
		copy(i.Object[:], r.take(len(i.Object)))
	}
	for range r.byte() {
		i.Addrs = append(i.Addrs, r.addr())
	}
	i.Name = string(r.rest)
	if r.failed || len(i.Addrs) == 0 || len(i.Addrs) > maxAddress || len(i.Name) > MaxName || !utf8.ValidString(i.Name) {
		return Invitation{}, malformed("its parts do not fit together")
	}
	return i, nil
}

// reader takes a string apart. After a failure it returns zeros.
type reader struct {
	rest   []byte
	failed bool
}

func (r *reader) take(n int) []byte {
	if r.failed = r.failed || len(r.rest) < n; r.failed {
		return make([]byte, n)
	}
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *reader) byte() byte { return r.take(1)[0] }

func (r *reader) addr() string {
	var host string
	switch kind := r.byte(); kind {
	case kindIPv4:
		host = netip.AddrFrom4([4]byte(r.take(4))).String()
	case kindIPv6:
		host = netip.AddrFrom16([16]byte(r.take(16))).String()
	case kindHost:
		host = string(r.take(int(r.byte())))
		r.failed = r.failed || !isHostName(host)
	default:
		r.failed = true
	}
	port := binary.BigEndian.Uint16(r.take(2))
	r.failed = r.failed || port == 0
	return net.JoinHostPort(host, fmt.Sprint(port))
}

// isHostName keeps what is printed and dialled to the characters of host names.
func isHostName(host string) bool {
	for _, c := range []byte(host) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '.') {
			return false
		}
	}
	return host != ""
}

func malformed(why string) error {
	return fault.New("invitation.parse", fault.Malformed, "this is not an invitation: %s", why).
		Advise("Copy the whole string that `micronode invite` or `micronode share` printed on the other machine.")
}
