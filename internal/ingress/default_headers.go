package ingress

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The default headers are in every answer: of a handler, of the warm lane, or
// of net/http itself. They tell a browser what it must not do with the bytes. A
// handler may change or remove one.
//
// Cross-Origin-Resource-Policy decides which pages may embed our bytes without
// CORS, as an <img> does. While no other origin is listed in http.cors, only
// our own may: on loopback this keeps a foreign page from loading what only
// this machine should see. As soon as one is listed, every page may, because
// the header cannot name origins, and a map that is drawn with <img> must not
// stay grey. What a page may *read* is decided by CORS alone.

// defaultHeader is one of them. The values are shared by all answers.
type defaultHeader struct {
	key    string // canonical
	values []string
}

var (
	noSniff         = defaultHeader{"X-Content-Type-Options", []string{"nosniff"}}
	corpSameOrigin  = defaultHeader{"Cross-Origin-Resource-Policy", []string{"same-origin"}}
	corpCrossOrigin = defaultHeader{"Cross-Origin-Resource-Policy", []string{"cross-origin"}}
)

// newDefaultHeaders are the headers of every answer of a server.
func newDefaultHeaders(policy *cors) []defaultHeader {
	if policy == nil {
		return []defaultHeader{corpSameOrigin, noSniff}
	}
	return []defaultHeader{corpCrossOrigin, noSniff}
}

// newHSTS is the header by which a browser remembers to use TLS with a host.
func newHSTS(age time.Duration) defaultHeader {
	return defaultHeader{"Strict-Transport-Security", []string{"max-age=" + strconv.FormatInt(int64(age/time.Second), 10)}}
}

// setDefaultHeaders sets the default headers of an answer. The keys are not
// canonicalised, because this is done for every request.
func (s *Server) setDefaultHeaders(p *policy, header http.Header, r *http.Request) {
	for i := range p.defaultHeaders {
		header[p.defaultHeaders[i].key] = p.defaultHeaders[i].values
	}
	// A browser applies it to the name and all its ports. The name localhost
	// belongs to every program of the machine, and few of them speak TLS.
	if r.TLS != nil && s.hsts.key != "" && hostname(r.Host) != "localhost" {
		header[s.hsts.key] = s.hsts.values
	}
}

// defaultHeaderLines are the default headers as text, for answers that are
// written by hand.
func (p *policy) defaultHeaderLines() string {
	var lines strings.Builder
	for _, one := range p.defaultHeaders {
		lines.WriteString(one.key + ": " + one.values[0] + "\r\n")
	}
	return lines.String()
}

// sandboxPolicy limits a page of untrusted bytes that is opened by itself: it
// may only be styled.
const sandboxPolicy = "default-src 'none'; style-src 'unsafe-inline'; sandbox"

// MarkUntrusted marks an answer with untrusted bytes: what was put into the
// store, packed into a map, or filled from elsewhere. If it is HTML, SVG or
// anything else that a browser would run, it is shown in an origin of its own,
// without scripts, and loads nothing. Pictures, tiles and data are as useful as
// before.
func MarkUntrusted(header http.Header) {
	header["Content-Security-Policy"] = untrustedPolicy
	header["Referrer-Policy"] = untrustedReferrer
	header[noSniff.key] = noSniff.values
}

var (
	untrustedPolicy   = []string{sandboxPolicy}
	untrustedReferrer = []string{"no-referrer"}
)

// headerLines writes header lines as net/http does: sorted, and with line
// breaks taken out of values.
func headerLines(header http.Header, wanted func(key string) bool) []byte {
	var out bytes.Buffer
	left := map[string]bool{}
	for key := range header {
		left[key] = !wanted(key)
	}
	_ = header.WriteSubset(&out, left) // a buffer takes everything
	return out.Bytes()
}
