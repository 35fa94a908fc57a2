package ingress

import "bytes"

// The recogniser does not parse HTTP. It knows one shape of request, byte for
// byte, and rejects everything else: a GET of an origin-form target in
// HTTP/1.1, lines that end in CRLF, header names from a short list, each at
// most once, values of printable ASCII. Whatever another parser might read
// differently (a bare LF, a folded line, a space before a colon, a second Host,
// a body of any kind) is not of that shape, so only net/http reads it.

// warmRequest is what the recogniser has seen of a request. The slices point into
// the buffer.
type warmRequest struct {
	target    []byte
	corrID    []byte
	encodings []byte // of Accept-Encoding
	policy    *policy
	corsLines []byte // the CORS headers of the answer; owned by the policy
	size      int    // of the whole request
}

// Headers that have no effect on the answer, or a known one.
const (
	seenHost = 1 << iota
	seenUserAgent
	seenAccept
	seenAcceptEncoding
	seenAcceptLanguage
	seenConnection
	seenCorrID
	seenReferer
	seenFetchSite
	seenFetchMode
	seenFetchDest
	seenFetchUser
	seenPriority
	seenOrigin
	seenBrand
	seenMobile
	seenPlatform
	seenUpgradeInsecure
)

// longestName is the length of the longest of them.
const longestName = len("upgrade-insecure-requests")

// headerBit finds a header name on the list; zero if it is not on it.
func headerBit(name []byte) int {
	switch len(name) {
	case 4:
		return match(name, "host", seenHost)
	case 6:
		return match(name, "accept", seenAccept) | match(name, "origin", seenOrigin)
	case 7:
		return match(name, "referer", seenReferer)
	case 8:
		return match(name, "priority", seenPriority)
	case 9:
		return match(name, "x-corr-id", seenCorrID) | match(name, "sec-ch-ua", seenBrand)
	case 10:
		return match(name, "user-agent", seenUserAgent) | match(name, "connection", seenConnection)
	case 14:
		return match(name, "sec-fetch-site", seenFetchSite) | match(name, "sec-fetch-mode", seenFetchMode) | match(name, "sec-fetch-dest", seenFetchDest) | match(name, "sec-fetch-user", seenFetchUser)
	case 15:
		return match(name, "accept-encoding", seenAcceptEncoding) | match(name, "accept-language", seenAcceptLanguage)
	case 16:
		return match(name, "sec-ch-ua-mobile", seenMobile)
	case 18:
		return match(name, "sec-ch-ua-platform", seenPlatform)
	case 25:
		return match(name, "upgrade-insecure-requests", seenUpgradeInsecure)
	default:
		return 0
	}
}

func match(name []byte, want string, bit int) int {
	if foldEqual(name, want) {
		return bit
	}
	return 0
}

// foldEqual compares with a text of lower-case letters and hyphens, ignoring
// case. Only letters are folded: a carriage return differs from a hyphen only
// in the bit that makes letters small.
func foldEqual(name []byte, want string) bool {
	if len(name) != len(want) {
		return false
	}
	for i := range name {
		c := name[i]
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != want[i] {
			return false
		}
	}
	return true
}

var (
	methodPart     = []byte("GET /")
	versionPart    = []byte(" HTTP/1.1\r\n")
	keepAliveToken = "keep-alive"
)

// recognise looks at the bytes that have come. It reports false if they are
// not, from the first byte on, a whole request of the one shape.
func (l *warmLane) recognise(b []byte, request *warmRequest) bool {
	if !bytes.HasPrefix(b, methodPart) {
		return false
	}
	at := len(methodPart)
	for at < len(b) && '!' <= b[at] && b[at] <= '~' {
		at++
	}
	if !bytes.HasPrefix(b[at:], versionPart) {
		return false
	}
	*request = warmRequest{target: b[len(methodPart)-1 : at], policy: l.listener.server.policy.Load()}
	request.corsLines = request.policy.corsLines
	at += len(versionPart)
	for found := 0; ; {
		rest := b[at:]
		if len(rest) >= 2 && rest[0] == '\r' && rest[1] == '\n' {
			request.size = at + 2
			return found&seenHost != 0
		}
		bit, size := l.line(rest, request)
		if bit == 0 || found&bit != 0 {
			return false
		}
		found |= bit
		at += size
	}
}

// line recognises one header line: its bit and its length. Zero if it is
// unknown or incomplete.
func (l *warmLane) line(b []byte, request *warmRequest) (bit, size int) {
	colon := bytes.IndexByte(b[:min(len(b), longestName+1)], ':')
	if colon < 0 {
		return 0, 0
	}
	if bit = headerBit(b[:colon]); bit == 0 {
		return 0, 0
	}
	end := colon + 1
	for end < len(b) && (' ' <= b[end] && b[end] <= '~' || b[end] == '\t') {
		end++
	}
	if end+1 >= len(b) || b[end] != '\r' || b[end+1] != '\n' {
		return 0, 0
	}
	value := b[colon+1 : end]
	switch bit {
	case seenHost:
		if !l.hosts[string(trim(value))] {
			return 0, 0
		}
	case seenConnection:
		if !foldEqual(trim(value), keepAliveToken) {
			return 0, 0
		}
	case seenCorrID:
		request.corrID = trim(value)
	case seenAcceptEncoding:
		request.encodings = value
	case seenOrigin:
		if lines, listed := request.policy.corsLinesByOrigin[string(trim(value))]; listed {
			request.corsLines = lines
		} else if cors := request.policy.cors; cors == nil || !cors.anyOrigin {
			return 0, 0
		}
	}
	return bit, end + 2
}

// trim removes the optional white space around a value.
func trim(value []byte) []byte {
	for len(value) > 0 && (value[0] == ' ' || value[0] == '\t') {
		value = value[1:]
	}
	for n := len(value); n > 0 && (value[n-1] == ' ' || value[n-1] == '\t'); n-- {
		value = value[:n-1]
	}
	return value
}

// listsToken reports whether a list of codings names one plainly. An element
// with a weight is not plain.
func listsToken(list []byte, coding string) bool {
	for len(list) > 0 {
		element, rest, _ := bytes.Cut(list, []byte{','})
		if foldEqual(trim(element), coding) {
			return true
		}
		list = rest
	}
	return false
}
