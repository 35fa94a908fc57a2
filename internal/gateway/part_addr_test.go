package gateway

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"micronode/fault"
)

func ExampleParsePartAddr() {
	for _, text := range []string{"https://index.example:8443/", "@micronode-1000.index", "http://192.0.2.1:8080"} {
		addr, err := ParsePartAddr(text)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(addr)
	}
	// Output:
	// https://index.example:8443
	// @micronode-1000.index
	// gateway.place: 192.0.2.1:8080 is not this machine, and without TLS the capabilities could be read on the way
}

func TestPartAddrs(t *testing.T) {
	for text, want := range map[string]string{
		"https://a.example": "https://a.example", "http://127.0.0.1:80": "http://127.0.0.1:80", "http://[::1]:80": "http://[::1]:80", "http://localhost:1": "http://localhost:1",
		"@x": "http://localhost", "/run/x": "http://localhost", "./x": "http://localhost",
	} {
		addr, err := ParsePartAddr(text)
		if err != nil || addr.URL() != want || (addr.Socket() == "") != strings.Contains(text, "://") {
			t.Errorf("%s: %q %q, %v", text, addr.URL(), addr.Socket(), err)
		}
	}
	for _, text := range []string{
		"", "@", "x", "@/x", "@" + strings.Repeat("x", 200), "@a\x00b", "ftp://a.example", "https://", "https://u:p@a.example", "https://a.example/x", "https://a.example?x", "https://a.example#x",
		"http://a.example", "https://a b", "https://%zz",
	} {
		if _, err := ParsePartAddr(text); fault.KindOf(err) != fault.Malformed || fault.NextOf(err) == "" {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A socket of another user is not reported as a part that is down.
func TestExplainFailure(t *testing.T) {
	addr, _ := ParsePartAddr("@x")
	for err, kind := range map[error]fault.Kind{
		errors.New("else"): fault.UpstreamFailed,
		fault.New("capability.dial", fault.Forbidden, "not ours"): fault.UpstreamFailed,
		fault.New("capability.dial", fault.NotReady, "nobody"):    fault.NotReady,
	} {
		if got := ExplainFailure("test", "index", addr, err); fault.KindOf(got) != kind || fault.NextOf(got) == "" || fault.RetryAfterOf(got) == 0 {
			t.Error(got)
		}
	}
}
