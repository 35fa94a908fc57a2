package gateway

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"micronode/fault"
)

func ExampleParsePlace() {
	for _, text := range []string{"https://index.example:8443/", "@micronode-1000.index", "http://192.0.2.1:8080"} {
		place, err := ParsePlace(text)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(place)
	}
	// Output:
	// https://index.example:8443
	// @micronode-1000.index
	// gateway.place: 192.0.2.1:8080 is not this machine, and without TLS anybody on the way could read the capabilities
}

func TestPlaces(t *testing.T) {
	for text, want := range map[string]string{
		"https://a.example": "https://a.example", "http://127.0.0.1:80": "http://127.0.0.1:80", "http://[::1]:80": "http://[::1]:80", "http://localhost:1": "http://localhost:1",
		"@x": "http://localhost", "/run/x": "http://localhost", "./x": "http://localhost",
	} {
		place, err := ParsePlace(text)
		if err != nil || place.URL() != want || (place.Socket() == "") != strings.Contains(text, "://") {
			t.Errorf("%s: %q %q, %v", text, place.URL(), place.Socket(), err)
		}
	}
	for _, text := range []string{
		"", "@", "x", "@/x", "@" + strings.Repeat("x", 200), "@a\x00b", "ftp://a.example", "https://", "https://u:p@a.example", "https://a.example/x", "https://a.example?x", "https://a.example#x",
		"http://a.example", "https://a b", "https://%zz",
	} {
		if _, err := ParsePlace(text); fault.KindOf(err) != fault.Malformed || fault.NextOf(err) == "" {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A socket of somebody else is not a part that is away.
func TestFailed(t *testing.T) {
	place, _ := ParsePlace("@x")
	for err, kind := range map[error]fault.Kind{
		errors.New("else"): fault.UpstreamFailed,
		fault.New("capability.dial", fault.Forbidden, "not ours"): fault.UpstreamFailed,
		fault.New("capability.dial", fault.NotReady, "nobody"):    fault.NotReady,
	} {
		if got := Failed("test", "index", place, err); fault.KindOf(got) != kind || fault.NextOf(got) == "" || fault.RetryAfterOf(got) == 0 {
			t.Error(got)
		}
	}
}
