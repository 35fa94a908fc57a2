package interop

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/internal/index/record"
	"micronode/internal/oap"
)

// kuboVersion is the one that bench/peers/kubo/go.mod requires.
const kuboVersion = "0.42.0"

// TestKubo has the IPFS daemon that most people run, as processes of their own,
// use a real node as its router and as a gateway; and the node use the daemon as
// its router. Nothing leaves this machine.
func TestKubo(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "micronode")
	if out, err := exec.Command("go", "build", "-C", "..", "-o", binary, "./cmd/micronode").CombinedOutput(); err != nil {
		t.Fatalf("go build ./cmd/micronode: %v\n%s", err, out)
	}
	ipfs := buildKubo(t)
	for name, test := range map[string]func(t *testing.T, binary, ipfs string){
		"it fetches our blocks":              kuboFetches,
		"it fetches our blocks by HTTPS":     kuboFetchesSecurely,
		"it learns that nobody has it":       kuboNobody,
		"we find what it announced":          kuboAnnounces,
		"one finds another one by way of us": kuboFindsKubo,
	} {
		t.Run(name, func(t *testing.T) { test(t, binary, ipfs) })
	}
}

// buildKubo returns the daemon that the bench builds too. Building it takes
// minutes, so it is kept, under a name with its version.
func buildKubo(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", ".build", "peers", "kubo-v"+kuboVersion))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Log("building Kubo; this takes minutes, once")
		fresh := fmt.Sprintf("%s.%d", path, os.Getpid()) // built to a temporary name and renamed: a partial program is never found
		out, err := exec.Command("go", "build", "-C", filepath.Join("..", "bench", "peers", "kubo"), "-trimpath", "-o", fresh, "github.com/ipfs/kubo/cmd/ipfs").CombinedOutput()
		if err != nil {
			t.Fatalf("go build of Kubo: %v\n%s", err, out)
		}
		if err := os.Rename(fresh, path); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(path, "version", "--number").Output(); err != nil || strings.TrimSpace(string(out)) != kuboVersion {
		t.Fatalf("%s is version %q, %v; remove it", path, out, err)
	}
	return path
}

func kuboFetches(t *testing.T, binary, ipfs string) {
	n := startIndexNode(t, binary)
	kuboFetchesFrom(t, n, startKubo(t, ipfs, routedBy(n.url)))
}

// Over HTTPS, Kubo fetches only from servers that speak HTTP/2. It is
// configured to trust the node's self-signed certificate.
func kuboFetchesSecurely(t *testing.T, binary, ipfs string) {
	cert, key := kuboCertificate(t)
	n := startIndexNode(t, binary, "MICRO_HTTP__CERT_FILE="+cert, "MICRO_HTTP__KEY_FILE="+key)
	n.trustCertificate(cert)
	kuboFetchesFrom(t, n, startKubo(t, ipfs, routedBy(n.url), "SSL_CERT_FILE="+cert))
}

func kuboFetchesFrom(t *testing.T, n *indexNode, k *kubo) {
	for _, size := range []int{0, 1, 16 << 10, 2 << 20} {
		data := make([]byte, size)
		_, _ = rand.Read(data) // never fails
		address := n.put(data)
		if found := strings.Fields(k.do("routing", "findprovs", address.CID())); !slices.Equal(found, []string{n.libp2pID()}) {
			t.Errorf("%d bytes: Kubo finds %v, want %s", size, found, n.libp2pID())
		}
		if got := k.do("block", "get", "--timeout=20s", address.CID()); got != string(data) {
			t.Errorf("%d bytes: Kubo fetched %d", size, len(got))
		}
	}
}

func kuboNobody(t *testing.T, binary, ipfs string) {
	n := startIndexNode(t, binary)
	k := startKubo(t, ipfs, routedBy(n.url))
	for _, cid := range []string{b3.Of([]byte("nowhere")).CID(), "bafkreidcd7frenco2m6ch7mny63wztgztv3q6fctaffgowkro6kljre5ei"} {
		if found := k.do("routing", "findprovs", cid); found != "" {
			t.Errorf("Kubo finds %s for %s", found, cid)
		}
	}
}

// kuboAnnounces has one daemon announce a block in the DHT of the daemons. The
// node queries the other one, by Delegated Routing.
func kuboAnnounces(t *testing.T, binary, ipfs string) {
	holder, router := startKubos(t, ipfs)
	n := startIndexNode(t, binary, "MICRO_INDEX__DELEGATED="+router.gateway)
	address := holder.announce("a block of Kubo's")
	key, ok := record.KeyOfLibp2p(holder.id)
	if !ok {
		t.Fatalf("%s holds no key", holder.id)
	}
	var found client.Providers
	n.get("/providers/"+address.String(), &found)
	if len(found.Providers) != 1 || found.Providers[0].ID != oap.PeerIDOf(key).String() || found.Source != string(record.Delegated) {
		t.Errorf("%+v", found)
	}
	if len(found.Providers) == 1 && !slices.Contains(append(found.Providers[0].Addrs, found.Providers[0].Addr), holder.swarm) {
		t.Errorf("%s is not where %+v says", holder.swarm, found.Providers[0])
	}
}

// kuboFindsKubo has a third daemon, whose only router is our node, fetch a
// block from the first: the node passes on what it learned.
func kuboFindsKubo(t *testing.T, binary, ipfs string) {
	holder, router := startKubos(t, ipfs)
	n := startIndexNode(t, binary, "MICRO_INDEX__DELEGATED="+router.gateway)
	k := startKubo(t, ipfs, routedBy(n.url))
	address := holder.announce("another block of Kubo's")
	if found := strings.Fields(k.do("routing", "findprovs", address.CID())); !slices.Equal(found, []string{holder.id}) {
		t.Errorf("Kubo finds %v, want %s", found, holder.id)
	}
	if got := k.do("block", "get", "--timeout=20s", address.CID()); got != "another block of Kubo's" {
		t.Errorf("Kubo fetched %q", got)
	}
}

// kubo is a daemon with a repository of its own.
type kubo struct {
	t       *testing.T
	binary  string
	environ []string
	id      string // 12D3Koo…
	swarm   string // a multiaddr
	gateway string // a URL
}

// kuboConfig is the settings of a daemon beyond the common ones.
type kuboConfig [][2]string

// routedBy is a daemon with one router and no other.
func routedBy(url string) kuboConfig {
	return kuboConfig{{"Routing.Type", `"delegated"`}, {"Routing.DelegatedRouters", `["` + url + `/routing/v1/providers"]`}, {"Provide.Enabled", "false"}}
}

// dhtConfig is a daemon that takes part in a DHT on this machine, and serves
// what it finds there.
var dhtConfig = kuboConfig{{"Routing.Type", `"dhtserver"`}, {"Routing.LoopbackAddressesOnLanDHT", "true"}, {"Gateway.ExposeRoutingAPI", "true"}}

// startKubos starts two daemons that know each other.
func startKubos(t *testing.T, ipfs string) (holder, router *kubo) {
	t.Helper()
	holder, router = startKubo(t, ipfs, dhtConfig), startKubo(t, ipfs, dhtConfig)
	router.do("swarm", "connect", holder.swarm+"/p2p/"+holder.id)
	return holder, router
}

var kuboGateway = regexp.MustCompile(`Gateway server listening on /ip4/127\.0\.0\.1/tcp/(\d+)`)

func startKubo(t *testing.T, ipfs string, config kuboConfig, environment ...string) *kubo {
	t.Helper()
	folder := t.TempDir()
	k := &kubo{t: t, binary: ipfs, environ: append(os.Environ(), append(environment, "IPFS_PATH="+folder, "IPFS_TELEMETRY=off", "DO_NOT_TRACK=1", "HOME="+folder)...)}
	k.do("init", "--empty-repo", "--profile=test,autoconf-off") // on loopback, without bootstrap peers
	for _, one := range config {
		k.do("config", "--json", one[0], one[1])
	}
	output := &outputBuffer{}
	daemon := exec.Command(ipfs, "daemon")
	daemon.Env, daemon.Stdout, daemon.Stderr = k.environ, output, output
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = daemon.Process.Kill()
		_ = daemon.Wait()
		if t.Failed() {
			t.Logf("Kubo said:\n%s", output)
		}
	})
	output.awaitText(t, "Daemon is ready")
	k.gateway = "http://127.0.0.1:" + kuboGateway.FindStringSubmatch(output.String())[1]
	var self struct {
		ID        string
		Addresses []string
	}
	if err := json.Unmarshal([]byte(k.do("id")), &self); err != nil || len(self.Addresses) == 0 {
		t.Fatalf("%+v, %v", self, err)
	}
	k.id, k.swarm = self.ID, strings.TrimSuffix(self.Addresses[0], "/p2p/"+self.ID)
	return k
}

// do runs a command that must succeed, and returns what it printed.
func (k *kubo) do(line ...string) string {
	k.t.Helper()
	return k.doWithInput("", line...)
}

// doWithInput is do with something to read.
func (k *kubo) doWithInput(input string, line ...string) string {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), oapTimeout)
	defer cancel()
	var complaints bytes.Buffer
	command := exec.CommandContext(ctx, k.binary, line...)
	command.Env, command.Stdin, command.Stderr = k.environ, strings.NewReader(input), &complaints
	out, err := command.Output()
	if err != nil {
		k.t.Fatalf("ipfs %s: %v\n%s", strings.Join(line, " "), err, &complaints)
	}
	return string(out)
}

// announce adds a block and announces it in the DHT.
func (k *kubo) announce(text string) b3.Address {
	k.t.Helper()
	cid := strings.TrimSpace(k.doWithInput(text, "block", "put", "--cid-codec=raw", "--mhtype=blake3"))
	address := b3.Of([]byte(text))
	if cid != address.CID() {
		k.t.Fatalf("Kubo calls it %s, and we %s", cid, address.CID())
	}
	k.do("routing", "provide", cid)
	return address
}

// outputBuffer is what a process has printed so far.
type outputBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *outputBuffer) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *outputBuffer) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func (o *outputBuffer) awaitText(t *testing.T, words string) {
	t.Helper()
	for deadline := time.Now().Add(oapTimeout); !strings.Contains(o.String(), words); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it never says %q:\n%s", words, o)
		}
	}
}

// indexNode is a node whose index is queried.
type indexNode struct {
	*micronode
	url string
	web *http.Client
}

// trustCertificate makes the test trust the certificate of the node, which is
// in the file.
func (n *indexNode) trustCertificate(file string) {
	n.t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		n.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	n.t.Cleanup(transport.CloseIdleConnections)
	n.url, n.web = strings.Replace(n.url, "http:", "https:", 1), &http.Client{Transport: transport}
}

// kuboCertificate makes a certificate for this machine, and writes it and its
// key to files.
func kuboCertificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	self := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, self, self, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	cert, key = filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func startIndexNode(t *testing.T, binary string, environment ...string) *indexNode {
	t.Helper()
	n := &indexNode{web: http.DefaultClient, micronode: &micronode{t: t, binary: binary, output: &bytes.Buffer{}, ended: make(chan error, 1)}}
	n.socket = fmt.Sprintf("micronode-interop-%d-%d", os.Getpid(), time.Now().UnixNano())
	n.process = exec.Command(binary, "run", "--open", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--overlay", "127.0.0.1:0", "--socket", n.socket)
	n.process.Env = append(os.Environ(), environment...)
	n.process.Stdout, n.process.Stderr = n.output, n.output
	if err := n.process.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { n.ended <- n.process.Wait() }()
	t.Cleanup(func() {
		n.kill()
		if t.Failed() {
			t.Logf("the node said:\n%s", n.output)
		}
	})
	n.do("status", "--wait", "20s")
	var status struct {
		PeerID string `json:"peer_id"`
		Listen struct{ HTTP string }
	}
	if err := json.Unmarshal([]byte(n.do("status", "--json")), &status); err != nil {
		t.Fatal(err)
	}
	n.id, n.url = status.PeerID, "http://"+status.Listen.HTTP
	return n
}

// put stores bytes. The node's address of them must be ours.
func (n *indexNode) put(data []byte) b3.Address {
	n.t.Helper()
	answer, err := n.web.Post(n.url+"/o", "application/octet-stream", bytes.NewReader(data))
	if err != nil {
		n.t.Fatal(err)
	}
	defer answer.Body.Close()
	var stored struct{ Address b3.Address }
	if err := json.NewDecoder(answer.Body).Decode(&stored); err != nil || stored.Address != b3.Of(data) {
		n.t.Fatalf("%s: %v, %v", answer.Status, stored.Address, err)
	}
	return stored.Address
}

// get reads a JSON document of the node.
func (n *indexNode) get(path string, into any) {
	n.t.Helper()
	answer, err := n.web.Get(n.url + path)
	if err != nil {
		n.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode == http.StatusOK {
		err = json.Unmarshal(text, into)
	}
	if err != nil || answer.StatusCode != http.StatusOK {
		n.t.Fatalf("%s: %s, %v\n%s", path, answer.Status, err, text)
	}
}

// libp2pID is libp2p's ID of the node, as it reports it, compared with its peer
// ID.
func (n *indexNode) libp2pID() string {
	n.t.Helper()
	var found struct{ Providers []struct{ ID string } }
	n.get("/routing/v1/providers/"+n.put([]byte("who are you")).CID(), &found)
	if len(found.Providers) != 1 {
		n.t.Fatalf("%+v", found)
	}
	key, ok := record.KeyOfLibp2p(found.Providers[0].ID)
	if !ok || oap.PeerIDOf(key).String() != n.id {
		n.t.Fatalf("the node %s calls itself %s", n.id, found.Providers[0].ID)
	}
	return found.Providers[0].ID
}
