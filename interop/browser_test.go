package interop

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestAMapAndSitesInABrowser has Chromium draw a map of a node on a page of a
// third origin, over HTTPS with a certificate of a real authority, and open two
// sites of it.
func TestAMapAndSitesInABrowser(t *testing.T) {
	for _, one := range []string{"chromium", "node"} {
		needProgram(t, one)
	}
	const script = "../web/test/elsewhere.mjs"
	if _, err := os.Stat("../web/node_modules/playwright-core"); err != nil {
		need(t, "web/node_modules is not there: make interop installs it")
	}
	binary, plainPort, tlsPort, folder := buildMicronode(t), freePort(t), freePort(t), t.TempDir()
	writePack := exec.Command("node", "--input-type=module", "-e", fmt.Sprintf("import {writeVector} from './packs.mjs'; writeVector(%q)", filepath.Join(folder, "lindach.pmtiles")))
	writePack.Dir = "../web/test"
	if out, err := writePack.CombinedOutput(); err != nil {
		t.Fatalf("the pack: %v\n%s", err, out)
	}
	config := filepath.Join(folder, "node.toml")
	if err := os.WriteFile(config, []byte("[edge.sites]\n\"one.maps.test\" = \"name:one\"\n\"two.maps.test\" = \"name:two\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	authority := newPebble(t, plainPort, tlsPort, 3600)
	authority.start(t, "")
	n := startPublicNodeWith(t, binary, []string{"--persist", filepath.Join(folder, "node"), "--config", config, "--pack", filepath.Join(folder, "lindach.pmtiles"), "--public",
		"--domain", "www.maps.test", "--domain", "one.maps.test", "--domain", "two.maps.test"},
		"MICRO_HTTP__ADDR=127.0.0.1:"+tlsPort, "MICRO_HTTP__ACME__PLAIN_ADDR=127.0.0.1:"+plainPort, "MICRO_HTTP__ACME__DIRECTORY="+authority.server.URL+"/dir",
		"MICRO_HTTP__ACME__CA_FILE="+authority.caFile)
	for site, files := range map[string]map[string]string{
		"one": {"index.html": `<!doctype html><title>One</title><p id="says">The script has not run</p><script src="site.js"></script>`, "site.js": `document.getElementById('says').textContent = 'The script has run'`},
		"two": {"index.html": "<!doctype html><title>Two</title><p>The other site</p>", "secret.txt": "a secret of two"},
	} {
		for name, text := range files {
			if err := os.MkdirAll(filepath.Join(folder, site), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(folder, site, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := exec.Command(binary, "put", filepath.Join(folder, site), "--name", site, "--socket", n.socket).CombinedOutput(); err != nil {
			t.Fatalf("put: %v\n%s", err, out)
		}
	}
	web := authority.client(t, tlsPort)
	awaitCertificate(t, n, web)
	var authorityKey string
	for _, host := range []string{"one.maps.test", "two.maps.test"} {
		for deadline := time.Now().Add(90 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			answer, err := web.Get("https://" + host + "/")
			if err == nil {
				answer.Body.Close()
				chain := answer.TLS.PeerCertificates
				authorityKey = spki(chain[len(chain)-1]) // the intermediate, which the node sends
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("no certificate for %s: %v\n%s", host, err, n.logs)
			}
		}
	}
	visit := exec.Command("node", script)
	visit.Env = append(os.Environ(), "NODE_PORT="+tlsPort, "AUTHORITY_KEY="+authorityKey)
	out, err := visit.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatalf("what visitors see: %v", err)
	}
}

// spki is the hash of a certificate's key by which Chromium trusts it.
func spki(of *x509.Certificate) string {
	sum := sha256.Sum256(of.RawSubjectPublicKeyInfo)
	return base64.StdEncoding.EncodeToString(sum[:])
}
