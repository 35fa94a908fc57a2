package observe

import (
	"net/http"

	"micronode/internal/corr"
)

// ensureCorrID gives a request its correlation ID: the one that its ctx carries
// already, the one of its header if that is well-formed, or a new one. It sets
// the response header and returns the request with the ctx.
func ensureCorrID(w http.ResponseWriter, r *http.Request) *http.Request {
	id := corr.From(r.Context())
	if id == "" {
		if id = r.Header.Get(corr.Header); !corr.Valid(id) {
			id = corr.New()
		}
		r = r.WithContext(corr.With(r.Context(), id))
	}
	w.Header().Set(corr.Header, id)
	return r
}
