package node

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"micronode/fault"
	"micronode/internal/certificate"
	"micronode/internal/config"
	"micronode/internal/ingress"
	"micronode/internal/testkit"
)

// What strangers may read is said wherever an operator looks.
func TestWhatIsPublicIsSaid(t *testing.T) {
	n := start(t, 1, config.Flag{Key: "http.public", Value: "tiles", Name: "test"}, config.Flag{Key: "http.public", Value: "registry", Name: "test"})
	n.waitReady(t)
	want := []string{"tiles", "registry"}
	if status, body := n.get(t, "/readyz"); status != http.StatusOK || len(body["public"].([]any)) != 2 {
		t.Errorf("%d %v", status, body)
	}
	if !slices.Equal(n.Status().Public, want) || !slices.Equal(n.Info().Public, want) {
		t.Errorf("%v, %v", n.Status().Public, n.Info().Public)
	}
}

// A certificate that could not be kept is refused before anybody is asked for
// it; with --domain the gateway is where browsers look.
func TestDomainsNeedAFolder(t *testing.T) {
	domain := config.Flag{Key: "http.acme.domains", Value: "maps.example.org", Name: "test"}
	_, err := New(t.Context(), testOptions(t, domain))
	if fault.KindOf(err) != fault.RejectPolicy || !strings.Contains(fault.NextOf(err), "--persist") || !strings.Contains(fault.NextOf(err), "--domain-staging") {
		t.Errorf("%v", err)
	}
	kept := &Node{options: Options{Persist: "folder"}}
	for _, n := range []*Node{kept, {}} {
		settings := Config{HTTP: ingress.DefaultHTTP()}
		settings.HTTP.ACME.Domains = []string{"maps.example.org"}
		if n != kept {
			settings.HTTP.ACME.Directory = ingress.ACMEStaging
		}
		if err := n.checkDomains(settings); err != nil {
			t.Error(err)
		}
	}
	loaded, err := load(Options{Sources: config.Sources{Flags: []config.Flag{domain}}})
	if err != nil || loaded.Value.HTTP.Addr != ":443" {
		t.Errorf("%v", err)
	}
	if loaded, err = load(Options{Sources: config.Sources{Flags: []config.Flag{domain, {Key: "http.addr", Value: "192.0.2.7:8443", Name: "test"}}}}); err != nil || loaded.Value.HTTP.Addr != "192.0.2.7:8443" {
		t.Errorf("%v", err)
	}
}

// A certificate that cannot be had is in status and in readiness, with its
// cause, and the node runs meanwhile; its plain listener redirects.
func TestACertificateThatCannotBeHadIsSaid(t *testing.T) {
	flag := func(key, value string) config.Flag { return config.Flag{Key: key, Value: value, Name: "test"} }
	n := start(t, 1, flag("http.acme.domains", "maps.example.org"), flag("http.acme.directory", "https://127.0.0.1:1/dir"), flag("http.acme.plain_addr", "127.0.0.1:0"))
	cause := fault.New("test", fault.RejectPolicy, "DNS leads elsewhere").Advise("Correct it.")
	n.onCertificates([]certificate.State{{Name: "maps.example.org", Err: cause}})
	_, body := n.get(t, "/readyz")
	found := false
	for _, one := range body["reasons"].([]any) {
		reason := one.(map[string]any)
		found = found || strings.HasSuffix(reason["dep"].(string), "certificate") && reason["next"] != ""
	}
	if !found || body["degraded"] != true {
		t.Errorf("%v", body)
	}
	if list := n.Status().Certificates; len(list) != 1 || list[0].Name != "maps.example.org" || list[0].Reason == "" {
		t.Errorf("%+v", list)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+n.plain.Addr().String()+"/edge/tiles/city.json?a=b", nil)
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]string{"maps.example.org": "https://maps.example.org:", "evil.example.org": ""} {
		request.Host = host
		answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		location := answer.Header.Get("Location")
		if want == "" && location != "" || !strings.HasPrefix(location, want) || want != "" && !strings.HasSuffix(location, "/edge/tiles/city.json?a=b") {
			t.Errorf("%s: %d %q", host, answer.StatusCode, location)
		}
	}
}

// The admin plane has TLS as admin.tls says, whatever the gateway has.
func TestTheAdminPlaneHasItsOwnTLS(t *testing.T) {
	pair, certFile, keyFile := testkit.Certificate(t)
	flag := func(key, value string) config.Flag { return config.Flag{Key: key, Value: value, Name: "test"} }
	files := []config.Flag{flag("http.cert_file", certFile), flag("http.key_file", keyFile)}
	names := []config.Flag{flag("http.acme.domains", "maps.example.org"), flag("http.acme.directory", "https://127.0.0.1:1/dir"), flag("http.acme.plain_addr", "")}
	roots := x509.NewCertPool()
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	roots.AddCert(leaf)
	for _, c := range []struct {
		setting string
		more    []config.Flag
		want    string // the scheme; none for a node that is refused
	}{
		{"auto", nil, "http"}, {"auto", files, "https"}, {"auto", names, "http"}, {"on", files, "https"}, {"on", names, "https"}, {"off", files, "http"}, {"on", nil, ""},
	} {
		t.Run(fmt.Sprint(c.setting, len(c.more)), func(t *testing.T) {
			flags := append([]config.Flag{flag("admin.tls", c.setting)}, c.more...)
			if c.want == "" {
				if _, err := New(t.Context(), testOptions(t, flags...)); fault.KindOf(err) != fault.RejectPolicy || !strings.Contains(fault.NextOf(err), "http.cert_file") {
					t.Errorf("%v", err)
				}
				return
			}
			n := start(t, 1, flags...)
			scheme, addr, _ := strings.Cut(n.Info().Admin, "://")
			testkit.Equal(t, "the URL's scheme", scheme, c.want)
			web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots}}}
			for _, scheme := range []string{"http", "https"} {
				answer, err := web.Get(scheme + "://" + addr + "/healthz")
				answers := err == nil && answer.StatusCode == http.StatusOK
				if err == nil {
					answer.Body.Close()
				}
				// A certificate that is not there yet ends the handshake.
				if want := scheme == c.want && !(len(c.more) == len(names) && scheme == "https"); answers != want {
					t.Errorf("%s answers: %t, %v", scheme, answers, err)
				}
			}
			n.stopAndWait(t)
		})
	}
}
