package fill

import (
	"net/http"
	"slices"

	"micronode/fault"
	"micronode/internal/tokentext"
)

// checkForwarded refuses headers that would show the origin a capability of
// this node. One that is carried as it is meant to be never comes here.
func checkForwarded(header http.Header) error {
	for name, values := range header {
		if slices.ContainsFunc(values, tokentext.Found) {
			return foundCapability("header " + name)
		}
	}
	return nil
}

// checkURL refuses a path or query that would.
func (t target) checkURL() error {
	switch {
	case tokentext.Found(t.path):
		return foundCapability("path")
	case tokentext.Found(t.query):
		return foundCapability("query")
	default:
		return nil
	}
}

// foundCapability does not repeat it.
func foundCapability(where string) error {
	return refuse(ReasonNotAllowed, fault.New(opTarget, fault.Malformed, "the %s has a capability of this node in it, and would be forwarded to the origin", where).
		Advise("Send it as `Authorization: Bearer …` alone, which is not forwarded. If others may have seen it, revoke it: micronode token revoke."))
}

// credentialFree are the headers of a request that say nothing about who asks.
// Only they are sent to another host to which an origin redirects: the client
// did not choose it, and any other header may be a credential.
var credentialFree = []string{
	"Accept", "Accept-Encoding", "Accept-Language", "Cache-Control", "If-Modified-Since", "If-None-Match", "Pragma", "User-Agent", "Via",
}

// withoutCredentials is the part of a header that is sent to another host.
func withoutCredentials(header http.Header) http.Header {
	out := make(http.Header, len(credentialFree))
	for _, name := range credentialFree {
		if values, given := header[name]; given {
			out[name] = values
		}
	}
	return out
}
