package ingress

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The manners are headers that every answer has, whoever gives it: a handler,
// the warm lane, or net/http by itself. They tell a browser what it must not do
// with the bytes. A handler may change one or take it back.
//
// Cross-Origin-Resource-Policy decides who may show our bytes without asking
// for leave, as an <img> does. While no other origin is listed in http.cors,
// nobody may: on loopback this keeps the page of a stranger from loading what
// only this machine should see. As soon as one is listed, everybody may,
// because the header cannot name origins, and a map that is drawn with <img>
// must not stay grey. What a page may *read* is decided by CORS alone.

// manner is one of them. The values are shared by all answers.
type manner struct {
	key    string // canonical
	values []string
}

var (
	noSniff      = manner{"X-Content-Type-Options", []string{"nosniff"}}
	ownPagesOnly = manner{"Cross-Origin-Resource-Policy", []string{"same-origin"}}
	everyPage    = manner{"Cross-Origin-Resource-Policy", []string{"cross-origin"}}
)

// mannersOf is what every answer of a server says.
func mannersOf(shared *cors) []manner {
	if shared == nil {
		return []manner{ownPagesOnly, noSniff}
	}
	return []manner{everyPage, noSniff}
}

// staySecure is the header by which a browser remembers to use TLS with a host.
func staySecure(age time.Duration) manner {
	return manner{"Strict-Transport-Security", []string{"max-age=" + strconv.FormatInt(int64(age/time.Second), 10)}}
}

// behave sets the manners of an answer. They are set as they are, without a
// look at how a name is written, because this is done for every request.
func (s *Server) behave(header http.Header, r *http.Request) {
	for i := range s.manners {
		header[s.manners[i].key] = s.manners[i].values
	}
	// A browser remembers it for the name and all its ports. The name localhost
	// belongs to every program of the machine, and few of them speak TLS.
	if r.TLS != nil && s.secure.key != "" && hostname(r.Host) != "localhost" {
		header[s.secure.key] = s.secure.values
	}
}

// mannerLines are the manners as text, for answers that are written by hand.
// Those are never written under TLS.
func (s *Server) mannerLines() string {
	var lines strings.Builder
	for _, one := range s.manners {
		lines.WriteString(one.key + ": " + one.values[0] + "\r\n")
	}
	return lines.String()
}

// untrusted is what a page of somebody else's may do when it is opened by
// itself: look good.
const untrusted = "default-src 'none'; style-src 'unsafe-inline'; sandbox"

// Untrusted marks an answer whose bytes are other people's: what was put into
// the store, packed into a map, or filled from elsewhere. If it is HTML, SVG or
// anything else that a browser would run, it is shown in an origin of its own,
// without scripts, and loads nothing. Pictures, tiles and data are as useful as
// before.
func Untrusted(header http.Header) {
	header["Content-Security-Policy"] = untrustedPolicy
	header["Referrer-Policy"] = untrustedReferrer
	header[noSniff.key] = noSniff.values
}

var (
	untrustedPolicy   = []string{untrusted}
	untrustedReferrer = []string{"no-referrer"}
)

// appendLines writes header lines as net/http does: sorted, and with line
// breaks taken out of values.
func appendLines(header http.Header, wanted func(key string) bool) []byte {
	var out bytes.Buffer
	left := map[string]bool{}
	for key := range header {
		left[key] = !wanted(key)
	}
	_ = header.WriteSubset(&out, left) // a buffer takes everything
	return out.Bytes()
}
