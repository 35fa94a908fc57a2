//go:build gates

package gates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"micronode/internal/edge/pack/packtest"
	"micronode/internal/testkit"
)

// Somebody with a map and a folder types what the README says on a machine of
// its own: the ports are those of the README. A browser is curl that asks for
// pages and follows.
func TestTheReadmesRecipes(t *testing.T) {
	needNetworks(t)
	if _, err := exec.LookPath("curl"); err != nil {
		skipGate(t, "curl is not installed: the README's recipes were not typed")
	}
	machine, other := newNetnsPair(t)
	s := &shell{machine, t.TempDir()}
	tile := strings.Repeat("a tile of the city ", 50)
	if err := packtest.WritePMTiles(filepath.Join(s.folder, "city.pmtiles"), packtest.PMSpec{Tiles: []packtest.PMTile{{Data: []byte(tile)}}, Type: packtest.PMVector, Metadata: `{"name":"City"}`}); err != nil {
		t.Fatal(err)
	}
	writeSite := func(text string) {
		if err := os.MkdirAll(filepath.Join(s.folder, "site"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.folder, "site", "index.html"), []byte("<!doctype html><title>Docs</title><p>"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	typed := func(line string) string {
		line = strings.Replace(line, "open http", "curl --location --header 'Accept: text/html' http", 1)
		out := s.typed(strings.Replace(line, "curl ", "curl --fail --silent --show-error ", 1))
		t.Logf("$ %s\n%s", line, out)
		return out
	}

	city := readmeLines(t, "Serve a map")
	stop := s.run(city[0][1])
	var document struct{ Tiles []string }
	if out := typed(city[1][1]); json.Unmarshal([]byte(out), &document) != nil || len(document.Tiles) != 1 || !strings.HasPrefix(document.Tiles[0], "http://127.0.0.1:8080/edge/tiles/city/") {
		t.Errorf("TileJSON: %s", out)
	}
	typed(city[2][1])
	if got, err := os.ReadFile(filepath.Join(s.folder, "tile")); err != nil || string(got) != tile {
		t.Errorf("the tile has %d bytes, %v", len(got), err)
	}

	site := readmeLines(t, "Publish a site")
	for _, version := range []string{"the first version", "the second version"} {
		writeSite(version)
		typed(site[0][1])
		if out := typed(site[1][1]); !strings.Contains(out, version) {
			t.Errorf("the site does not show %s: %s", version, out)
		}
	}
	stop()

	// The origin is on the other machine, by its name.
	var asked atomic.Int32
	authority := serveOrigin(t, other, "tiles.example.org", func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("Cache-Control", "max-age=600")
		_, _ = io.WriteString(w, `{"version":8,"from":"`+r.Host+r.URL.Path+`"}`)
	})
	setHosts(t, machine, other.addr+" tiles.example.org\n")
	origin := readmeLines(t, "Cache an origin")
	stop = s.run("env MICRO_EDGE__FILL__ALLOW_PRIVATE=true MICRO_EDGE__FILL__CA_FILE=" + authority + " " + origin[0][1])
	if out := typed(origin[1][1]); !strings.Contains(out, "tiles.example.org/style.json") {
		t.Errorf("the origin's answer: %s", out)
	}
	if out := typed(origin[2][1]); !regexp.MustCompile(`(?mi)^age: [0-9]+`).MatchString(out) || asked.Load() != 1 {
		t.Errorf("the second answer, and the origin was asked %d times: %s", asked.Load(), out)
	}
	stop()

	// Three signers, whose passphrase comes from a file in place of their heads,
	// and who say yes.
	testkit.Must(t, os.CopyFS(filepath.Join(s.folder, "docs", "samples"), os.DirFS("../docs/samples")))
	testkit.WriteFile(t, filepath.Join(s.folder, "pass"), "correct horse battery staple\n")
	stop = s.run("micronode run")
	var id string
	for _, line := range readmeLines(t, "Govern a list together") {
		text := strings.ReplaceAll(line[1], " ID", " "+id)
		text = strings.ReplaceAll(text, "registry approve ", "registry approve --yes ")
		out := typed("export MICRO_PASSPHRASE_FILE=pass; " + text)
		if found := regexp.MustCompile(`micronode registry approve (\w+) --key`).FindStringSubmatch(out); found != nil {
			id = found[1]
		}
	}
	if out := s.typed("micronode registry show 1"); !strings.Contains(out, "edge-1") || !strings.Contains(out, "alice") || !strings.Contains(out, "bob") {
		t.Errorf("version 1: %s", out)
	}
	stop()
	report(t, "the README's recipes for a map, a site, an origin and a list", "work as they are typed", "they do")
}

// serveOrigin serves HTTPS under a name on a machine, and returns the file with
// the authority that has signed its certificate.
func serveOrigin(t *testing.T, on *netnsNode, name string, handle http.HandlerFunc) (authority string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.Must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), DNSNames: []string{name}, IsCA: true, BasicConstraintsValid: true}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	testkit.Must(t, err)
	authority = filepath.Join(t.TempDir(), "authority.pem")
	testkit.WriteFile(t, authority, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})))

	// A socket stays in the network in which it was made; the thread ends with
	// its goroutine, because it is still locked then.
	type made struct {
		listener net.Listener
		err      error
	}
	listening := make(chan made)
	go func() {
		runtime.LockOSThread()
		network, err := os.Open("/run/netns/" + on.name)
		if err == nil {
			err = unix.Setns(int(network.Fd()), unix.CLONE_NEWNET)
			_ = network.Close()
		}
		var listener net.Listener
		if err == nil {
			listener, err = net.Listen("tcp", on.addr+":443")
		}
		listening <- made{listener, err}
	}()
	got := <-listening
	testkit.Must(t, got.err)
	server := &http.Server{Handler: handle}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(tls.NewListener(got.listener, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{raw}, PrivateKey: key}}}))
	}()
	t.Cleanup(func() { _ = server.Close(); <-served })
	return authority
}

// setHosts gives a machine names; ip netns shows the file there as /etc/hosts.
func setHosts(t *testing.T, on *netnsNode, text string) {
	t.Helper()
	folder := filepath.Join("/etc/netns", on.name)
	testkit.Must(t, os.MkdirAll(folder, 0o755))
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	testkit.WriteFile(t, filepath.Join(folder, "hosts"), "127.0.0.1 localhost\n"+text)
}
