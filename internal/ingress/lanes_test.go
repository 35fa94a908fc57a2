package ingress

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The two lanes must look like one from outside: the same bytes get the same
// answers, whether the warm lane is on or off.

// conversationResult is what a client sees of a connection.
type conversationResult struct {
	answers string        // without what differs each time
	took    time.Duration // until the server closed
	hits    int64         // by the lane
}

// volatileLines is what differs from one answer to the next.
var volatileLines = regexp.MustCompile(`(?m)^(Date: |X-Corr-Id: |.*"corr_id":).*$`)

// maskVolatile masks it, and leaves it in its line.
func maskVolatile(text string) string { return volatileLines.ReplaceAllString(text, "$1…") }

// converse sends pieces to a server and reads until it closes. It runs in a
// bubble of faked time.
func converse(t *testing.T, warm bool, listed []string, pieces ...[]byte) conversationResult {
	f := newWarmFixture(t, func(o *Options) { o.Times.CORS = listed }).listen(func(o *ListenOptions) { o.Warm = warm })
	c := f.dial()
	from := time.Now()
	go func() {
		for i, piece := range pieces {
			if i > 0 {
				time.Sleep(100 * time.Millisecond)
			}
			c.Write(piece)
		}
	}()
	all, _ := io.ReadAll(c.Conn)
	took := time.Since(from)
	time.Sleep(time.Duration(1+len(pieces)) * 100 * time.Millisecond) // until all pieces are written
	if n := f.outstanding.Load(); n != 0 {
		t.Errorf("%d answers were not given back", n)
	}
	return conversationResult{maskVolatile(string(all)), took, f.hits.Load()}
}

// compareLanes runs the same conversation on both lanes.
func compareLanes(t *testing.T, pieces ...[]byte) (on conversationResult) {
	t.Helper()
	return compareLanesFor(t, nil, pieces...)
}

// compareLanesFor is compareLanes with origins that are listed.
func compareLanesFor(t *testing.T, listed []string, pieces ...[]byte) (on conversationResult) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		on = converse(t, true, listed, pieces...)
		off := converse(t, false, listed, pieces...)
		if on.answers != off.answers {
			t.Errorf("%.300q\nwarm: %.600q\ncold: %.600q", bytes.Join(pieces, []byte("|")), on.answers, off.answers)
		}
		if d := on.took - off.took; d < -warmDeadlineStep || d > warmDeadlineStep {
			t.Errorf("%.300q: closed after %s with the lane on, %s with it off", bytes.Join(pieces, []byte("|")), on.took, off.took)
		}
	})
	return on
}

// statuses are those of all answers in a conversation.
func statuses(text string) string {
	var all []string
	for _, found := range regexp.MustCompile(`HTTP/1\.[01] (\d\d\d) `).FindAllStringSubmatch(text, -1) {
		all = append(all, found[1])
	}
	return strings.Join(all, " ")
}

const warmGet = "GET /w/tiny HTTP/1.1\r\nHost: localhost\r\n\r\n"

// Attempts to make two parsers disagree about where a request ends, or which
// host it is for. Each stands before an innocent second request.
var smuggling = map[string]struct {
	text string
	want string // the statuses; none if the connection is closed without an answer
}{
	"length and chunked":         {"POST /w/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + warmGet, "400"},
	"chunked and length":         {"GET /w/tiny HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n" + warmGet, "400"},
	"get with a length":          {"GET /w/tiny HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello" + warmGet, "200 200"},
	"two lengths":                {"GET /w/tiny HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello" + warmGet, "400"},
	"a length with a sign":       {"GET /w/tiny HTTP/1.1\r\nHost: localhost\r\nContent-Length: +5\r\n\r\nhello" + warmGet, "400"},
	"chunked, obfuscated":        {"POST /w/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + warmGet, "501"},
	"chunked twice":              {"POST /w/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + warmGet, "501"},
	"space before colon":         {"GET /w/tiny HTTP/1.1\r\nHost : localhost\r\n\r\n" + warmGet, "400"},
	"space before colon, length": {"GET /w/tiny HTTP/1.1\r\nHost: localhost\r\nContent-Length : 5\r\n\r\nhello" + warmGet, "400"},
	"bare LF":                    {"GET /w/tiny HTTP/1.1\nHost: localhost\n\n" + warmGet, "200 200"},
	"bare LF in a header":        {"GET /w/tiny HTTP/1.1\r\nHost: localhost\nContent-Length: 44\r\n\r\n" + warmGet, "200"},
	"bare CR in a value":         {"GET /w/tiny HTTP/1.1\r\nHost: localhost\r\nUser-Agent: a\rContent-Length: 5\r\n\r\n" + warmGet, "400"},
	"bare CR as a line end":      {"GET /w/tiny HTTP/1.1\rHost: localhost\r\r" + warmGet, "400"},
	"folded line":                {"GET /w/tiny HTTP/1.1\r\nHost: localhost\r\nUser-Agent: a\r\n b\r\n\r\n" + warmGet, "200 200"},
	"folded host":                {"GET /w/tiny HTTP/1.1\r\nHost:\r\n localhost\r\n\r\n" + warmGet, "200 200"},
	"leading space":              {"GET /w/tiny HTTP/1.1\r\n Host: localhost\r\n\r\n" + warmGet, "400"},
	"two hosts":                  {"GET /w/tiny HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n" + warmGet, "400"},
	"the same host twice":        {"GET /w/tiny HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n" + warmGet, "400"},
	"the same header twice":      {"GET /w/tiny HTTP/1.1\r\nHost: localhost\r\nX-Corr-ID: abcdefgh\r\nX-Corr-ID: ijklmnop\r\n\r\n" + warmGet, "200 200"},
	"no host":                    {"GET /w/tiny HTTP/1.1\r\nUser-Agent: x\r\n\r\n" + warmGet, "400"},
	"absolute form":              {"GET http://localhost/w/tiny HTTP/1.1\r\nHost: evil.example\r\n\r\n" + warmGet, "200 200"},
	"absolute form, foreign":     {"GET http://evil.example/w/tiny HTTP/1.1\r\nHost: localhost\r\n\r\n" + warmGet, "403 200"},
	"authority in the path":      {"GET //evil.example/w/tiny HTTP/1.1\r\nHost: localhost\r\n\r\n" + warmGet, "400 200"},
	"dots in the path":           {"GET /x/../w/tiny HTTP/1.1\r\nHost: localhost\r\n\r\n" + warmGet, "400 200"},
	"encoded path":               {"GET /w/%74iny HTTP/1.1\r\nHost: localhost\r\n\r\n" + warmGet, "200 200"},
	"two spaces":                 {"GET  /w/tiny HTTP/1.1\r\nHost: localhost\r\n\r\n" + warmGet, "400"},
	"tab for a space":            {"GET\t/w/tiny HTTP/1.1\r\nHost: localhost\r\n\r\n" + warmGet, "400"},
	"lower case version":         {"GET /w/tiny http/1.1\r\nHost: localhost\r\n\r\n" + warmGet, "400"},
	"HTTP/1.0":                   {"GET /w/tiny HTTP/1.0\r\nHost: localhost\r\n\r\n" + warmGet, "200"},
	"HTTP/1.0 kept alive":        {"GET /w/tiny HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n" + warmGet, "200 200"},
	"HTTP/1.2":                   {"GET /w/tiny HTTP/1.2\r\nHost: localhost\r\n\r\n" + warmGet, "200 200"},
	"HTTP/2 preface":             {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "403"},
	"lower case method":          {"get /w/tiny HTTP/1.1\r\nHost: localhost\r\n\r\n" + warmGet, "405 200"},
	"empty line first":           {"\r\n" + warmGet, "400"},
	"null in a value":            {"GET /w/tiny HTTP/1.1\r\nHost: localhost\r\nUser-Agent: a\x00b\r\n\r\n" + warmGet, "400"},
	"null in a name":             {"GET /w/tiny HTTP/1.1\r\nHost\x00: localhost\r\n\r\n" + warmGet, "400"},
	"name that folds to ours":    {"GET /w/tiny HTTP/1.1\r\nHost: localhost\r\nUser\rAgent: x\r\n\r\n" + warmGet, "400"},
	"empty name":                 {"GET /w/tiny HTTP/1.1\r\nHost: localhost\r\n: x\r\n\r\n" + warmGet, "400"},
	"host with a path":           {"GET /w/tiny HTTP/1.1\r\nHost: localhost/evil\r\n\r\n" + warmGet, "400"},
	"host of another":            {"GET /w/tiny HTTP/1.1\r\nHost: evil.example\r\n\r\n" + warmGet, "403 200"},
	"host in capitals":           {"GET /w/tiny HTTP/1.1\r\nHost: LOCALHOST:8080\r\n\r\n" + warmGet, "200 200"},
	"upgrade to h2c":             {"GET /w/tiny HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n" + warmGet, "200 200"},
	"hop-by-hop trick":           {"GET /w/tiny HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, X-Corr-ID\r\n\r\n" + warmGet, "200 200"},
	"expect on a get":            {"GET /w/tiny HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n\r\n" + warmGet, "200 200"},
	"trailing garbage":           {warmGet + "XX", "200"},
	"trailing half request":      {warmGet + "GET /w/ti", "200 408"},
	"warm, cold, warm":           {warmGet + "GET /w/cold HTTP/1.1\r\nHost: localhost\r\n\r\n" + warmGet, "200 200 200"},
	"long header":                {"GET /w/tiny HTTP/1.1\r\nHost: localhost\r\nUser-Agent: " + strings.Repeat("x", 5000) + "\r\n\r\n" + warmGet, "200 200"},
	"too long header":            {"GET /w/tiny HTTP/1.1\r\nHost: localhost\r\nUser-Agent: " + strings.Repeat("x", 50000) + "\r\n\r\n" + warmGet, "431"},
}

func TestSmuggling(t *testing.T) {
	for name, c := range smuggling {
		t.Run(name, func(t *testing.T) {
			on := compareLanes(t, []byte(c.text))
			if got := statuses(on.answers); got != c.want {
				t.Errorf("%q got %s, want %s", c.text, got, c.want)
			}
		})
	}
}

// A request of two lengths is refused wherever it stands: behind a warm answer
// as behind any other.
func TestTwoLengthsBehindAnything(t *testing.T) {
	const post = "POST /w/x HTTP/1.1\r\nHost: localhost\r\n"
	for _, first := range []string{warmGet, warmGet + warmGet, "GET /w/cold HTTP/1.1\r\nHost: localhost\r\n\r\n", sampleRequests[12], sampleRequests[13]} {
		for _, text := range []string{
			post + "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", post + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
			"POST /w/x HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		} {
			if on := compareLanes(t, []byte(first+text+warmGet)); !strings.HasSuffix(statuses(on.answers), " 400") {
				t.Errorf("%q got %s", first+text, statuses(on.answers))
			}
		}
		compareLanes(t, []byte(first+post+"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"+warmGet))
	}
}

// The same in pieces: what is split is never answered differently.
func TestSmugglingInPieces(t *testing.T) {
	for name, c := range smuggling {
		if len(c.text) > 1000 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			text := []byte(c.text)
			for _, cut := range []int{1, len(text) / 3, len(text) / 2, len(text) - 2} {
				compareLanes(t, text[:cut], text[cut:])
			}
		})
	}
}

// sampleRequests are requests of many kinds. One that is not for the lane must
// not affect those after it.
var sampleRequests = []string{
	warmGet,
	"GET /m/small HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /f/small HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /m/packed HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n",
	"GET /m/packed HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /m/empty HTTP/1.1\r\nHost: localhost\r\nX-Corr-ID: abcdefgh\r\n\r\n",
	"GET /f/empty HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /w/small HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: \"b3:test\"\r\n\r\n",
	"GET /m/small HTTP/1.1\r\nHost: localhost\r\nRange: bytes=1-2\r\n\r\n",
	"HEAD /m/small HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /m/nothing HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"POST /w/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 41\r\n\r\n" + warmGet,
	"POST /w/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n29\r\n" + warmGet + "\r\n0\r\n\r\n",
	"POST /w/x HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
	"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi",
	"GET /m/small HTTP/1.1\r\nHost: localhost\r\nOrigin: https://maps.example\r\n\r\n",
	"GET /m/small HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\n\r\n",
	"OPTIONS /m/small HTTP/1.1\r\nHost: localhost\r\nOrigin: https://maps.example\r\nAccess-Control-Request-Method: GET\r\n\r\n",
	"GET /w/tiny HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n",
	"GET /w/tiny HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
}

// corsListings are values of http.cors.
var corsListings = [][]string{nil, {"https://maps.example"}, {"*"}, {"*", "https://maps.example"}}

// conversation is a list of requests and how they are sent: each split at an
// offset, or joined to the one before.
func conversation(kinds, cuts []byte) (pieces [][]byte) {
	for i, kind := range kinds {
		text, cut := []byte(sampleRequests[int(kind)%len(sampleRequests)]), 0
		if i < len(cuts) {
			cut = int(cuts[i])
		}
		switch {
		case cut == 0 || len(pieces) == 0:
			pieces = append(pieces, text)
		case cut == 255:
			pieces[len(pieces)-1] = append(bytes.Clone(pieces[len(pieces)-1]), text...)
		default:
			cut %= len(text)
			pieces[len(pieces)-1] = append(bytes.Clone(pieces[len(pieces)-1]), text[:cut]...)
			pieces = append(pieces, text[cut:])
		}
	}
	return pieces
}

// Every kind of request is followed by one for the lane, at once and later, and
// in pieces.
func TestBackToTheLane(t *testing.T) {
	cuts := []byte{0, 1, 3, 4, 20, 22, 255}
	if testing.Short() {
		cuts = []byte{1, 22} // all of them: make race
	}
	for i := range sampleRequests {
		for _, cut := range cuts {
			on := compareLanes(t, conversation([]byte{byte(i), 1, 0, 2}, []byte{0, cut, cut, 0})...)
			if on.hits == 0 && i != len(sampleRequests)-1 {
				t.Errorf("after %q nothing was warm", sampleRequests[i])
			}
		}
	}
	// net/http has one to three bytes of the next request already, by itself or
	// from the read with which it watches a client while a handler runs.
	slow := []byte("GET /w/slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
	for _, held := range []string{"X", "XY", "XYZ", "G", "GE", "GET"} {
		compareLanes(t, append(bytes.Clone(slow), held...), []byte(warmGet))
		compareLanes(t, slow, []byte(held), []byte(warmGet), []byte(warmGet))
		compareLanes(t, slow, []byte(held), []byte(warmGet[len(held):]), nil, nil, []byte(warmGet))
	}
	for _, shared := range corsListings {
		var all [][]byte
		for i := range sampleRequests {
			all = append(all, []byte(sampleRequests[i]), []byte(sampleRequests[1]))
		}
		compareLanesFor(t, shared, all...)
	}
}

// FuzzConversations sends rows of requests of all kinds to both lanes, on one
// connection.
func FuzzConversations(f *testing.F) {
	f.Add([]byte{0, 7, 1, 12, 2, 13, 0}, []byte{0, 0, 255, 3, 17, 0, 255}, uint8(0))
	f.Add([]byte{8, 16, 1, 17, 18, 2, 20, 0}, []byte{}, uint8(1))
	f.Add([]byte{8, 16, 1, 17, 18, 2, 19, 0}, []byte{1, 2, 3, 4, 5, 6}, uint8(2))
	f.Fuzz(func(t *testing.T, kinds, cuts []byte, listing uint8) {
		compareLanesFor(t, corsListings[int(listing)%len(corsListings)], conversation(kinds[:min(len(kinds), 24)], cuts)...)
	})
}

// FuzzLanes sends arbitrary bytes to both lanes.
func FuzzLanes(f *testing.F) {
	for _, c := range smuggling {
		if len(c.text) < 4000 {
			f.Add([]byte(c.text), uint16(len(c.text)))
		}
	}
	f.Add([]byte(warmGet+warmGet), uint16(20))
	f.Add([]byte("GET /w/packed HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nAccept-Encoding: deflate, gzip\r\nX-Corr-ID: abcdefgh\r\nReferer: /\r\n\r\n"), uint16(0))
	f.Add([]byte(sampleRequests[7]+sampleRequests[1]+sampleRequests[2]), uint16(len(sampleRequests[7])))
	f.Add([]byte(sampleRequests[16]+sampleRequests[4]+sampleRequests[3]), uint16(10))
	f.Fuzz(func(t *testing.T, text []byte, cut uint16) {
		at := min(int(cut), len(text))
		compareLanes(t, text[:at], text[at:])
	})
}
