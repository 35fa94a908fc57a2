package ingress

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	"micronode/internal/capability"
)

// SenderHeader is how one part of the node tells another who sent a request. It
// is believed where ClientHeader is.
const SenderHeader = "Micronode-Sender"

// localSender is the sender of what comes by the local socket.
const localSender = "local"

// Sender names who sent a request that was authorised, for what a service
// remembers of it, such as its idempotency keys: all requests with one token,
// and with all tokens that it was narrowed to, have one sender. It grants
// no rights.
func Sender(r *http.Request) string {
	c := callOf(r.Context())
	if c == nil {
		return ""
	}
	if forwarded := r.Header[SenderHeader]; len(forwarded) == 1 && len(forwarded[0]) <= sha256.BlockSize && c.isFromPart(r) {
		return forwarded[0]
	}
	if c.listener.options.Local {
		return localSender
	}
	if family := capability.Family(Bearer(r.Header)); family != "" {
		return family
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		sum := sha256.Sum256(r.TLS.PeerCertificates[0].RawSubjectPublicKeyInfo)
		return hex.EncodeToString(sum[:16])
	}
	return ""
}
