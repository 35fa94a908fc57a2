// Package corr is the correlation ID: one ID for a request in the logs of the
// caller, of the node and of its parts. The SDK and the node share it, so an ID
// that arrives with a request goes on with the calls that the request causes.
package corr

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
)

// Header is the header that carries a correlation ID in and out.
const Header = "X-Corr-ID"

// The bounds of a well-formed correlation ID: long enough to be found in a
// log, short enough not to fill one.
const (
	minLength = 8
	maxLength = 64
)

// New makes a correlation ID: 128 random bits as 32 hex digits. It
// distinguishes requests and is no secret, so the fast generator of the runtime
// is good enough.
func New() string {
	var text [32]byte
	return string(AppendNew(text[:0]))
}

// AppendNew appends what New makes.
func AppendNew(to []byte) []byte {
	var raw [16]byte
	binary.NativeEndian.PutUint64(raw[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(raw[8:], rand.Uint64())
	return hex.AppendEncode(to, raw[:])
}

// Valid reports whether a correlation ID from outside is well-formed: 8 to 64
// of A-Z, a-z, 0-9, dot, underscore and hyphen. That covers UUIDs, ULIDs and
// trace IDs, and nothing that could break a log line or a header.
func Valid[Text string | []byte](id Text) bool {
	if len(id) < minLength || len(id) > maxLength {
		return false
	}
	for i := range len(id) {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

type key struct{}

// With returns a context that carries the correlation ID.
func With(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, key{}, id)
}

// From is the correlation ID that the context carries, or "" if it has none.
func From(ctx context.Context) string {
	id, _ := ctx.Value(key{}).(string)
	return id
}
