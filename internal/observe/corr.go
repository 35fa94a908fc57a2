package observe

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
)

// CorrHeader is the header that carries a correlation ID in and out.
const CorrHeader = "X-Corr-ID"

// The bounds of a well-formed correlation ID: long enough to be found in a
// log, short enough not to fill one.
const (
	corrMin = 8
	corrMax = 64
)

type corrKey struct{}

// NewCorrID makes a correlation ID: 128 random bits as 32 hex digits. It tells
// requests apart and is no secret, so the fast generator of the runtime is
// good enough.
func NewCorrID() string {
	var raw [16]byte
	binary.NativeEndian.PutUint64(raw[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(raw[8:], rand.Uint64())
	return hex.EncodeToString(raw[:])
}

// ParseCorrID reports whether somebody else's correlation ID is well-formed:
// 8 to 64 of A-Z, a-z, 0-9, dot, underscore and hyphen. That covers UUIDs,
// ULIDs and trace IDs, and nothing that could break a log line or a header.
func ParseCorrID(text string) (id string, ok bool) {
	if len(text) < corrMin || len(text) > corrMax {
		return "", false
	}
	for i := range len(text) {
		if !corrByte(text[i]) {
			return "", false
		}
	}
	return text, true
}

func corrByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return c == '.' || c == '_' || c == '-'
}

// WithCorrID returns a ctx that carries the correlation ID.
func WithCorrID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, corrKey{}, id)
}

// CorrID is the correlation ID that ctx carries, or "" if it has none.
func CorrID(ctx context.Context) string {
	id, _ := ctx.Value(corrKey{}).(string)
	return id
}

// CarryCorrID gives a request its correlation ID: the one that its ctx carries
// already, the one of its header if that is well-formed, or a new one. The
// answer gets the header, the returned request the ctx.
func CarryCorrID(w http.ResponseWriter, r *http.Request) *http.Request {
	id := CorrID(r.Context())
	if id == "" {
		var ok bool
		if id, ok = ParseCorrID(r.Header.Get(CorrHeader)); !ok {
			id = NewCorrID()
		}
		r = r.WithContext(WithCorrID(r.Context(), id))
	}
	w.Header().Set(CorrHeader, id)
	return r
}
