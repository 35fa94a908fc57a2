package house

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/flow"
	"micronode/internal/node"
	"micronode/internal/testkit"
)

const heading = "<!-- Written by `make generate` from the code. Do not edit. -->\n\n"

// TestGenerated holds the generated documents equal to the code.
func TestGenerated(t *testing.T) {
	for name, document := range map[string]func(*testing.T) string{
		"_generated/concurrency.md": concurrency,
		"_generated/faults.md":      faults,
		"config.md":                 settings,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("../../docs", name)
			want := heading + document(t)
			if testkit.Update() {
				if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if line := firstDifference(string(got), want); line != "" {
				t.Errorf("docs/%s does not say what the code does: %s\nIf the code is right, run `make generate` and commit the change.", name, line)
			}
		})
	}
}

// TestReadsAreInTheTable holds the table of reads in docs/security.md equal to
// the routes of a node.
func TestReadsAreInTheTable(t *testing.T) {
	const path, begin, end = "../../docs/security.md", "<!-- reads: begin -->\n", "<!-- reads: end -->"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begun := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !begun || !ended {
		t.Fatalf("%s has no lines %q and %q", path, begin, end)
	}
	want := before + begin + reads(t) + end + after
	if testkit.Update() {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if line := firstDifference(string(text), want); line != "" {
		t.Errorf("docs/security.md does not say who may read what: %s\nIf the routes are right, run `make generate` and commit the change.", line)
	}
}

// reads lists the reads of the gateway by who may read them.
func reads(t *testing.T) string {
	n, _ := startNode(t, "reads")
	answer, err := http.Get(n.Info().HTTP + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer answer.Body.Close()
	var document struct {
		Paths map[string]map[string]struct {
			Summary  string                `json:"summary"`
			Public   string                `json:"x-public"`
			Scope    string                `json:"x-scope"`
			Security []map[string][]string `json:"security"`
		} `json:"paths"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&document); err != nil {
		t.Fatal(err)
	}
	order := []string{"group", "this machine", "inside", "scope", "open"}
	var rows []string
	for path, methods := range document.Paths {
		read, ok := methods["get"]
		if !ok {
			continue
		}
		kind, who := "this machine", "this machine"
		switch {
		case read.Scope != "":
			kind, who = "scope", "scope `"+read.Scope+"`"
		case read.Public != "":
			kind, who = "group", "group `"+read.Public+"`"
		case len(read.Security) > 0:
			kind, who = "inside", "inside"
		case read.Security != nil:
			kind, who = "open", "open everywhere"
		}
		rows = append(rows, fmt.Sprintf("%d| `%s` | %s | %s |\n", slices.Index(order, kind), path, read.Summary, who))
	}
	slices.Sort(rows)
	var b strings.Builder
	b.WriteString("| GET | answers | who |\n|---|---|---|\n")
	for _, row := range rows {
		b.WriteString(row[1:])
	}
	return b.String()
}

func firstDifference(got, want string) string {
	have, should := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(have), len(should)) {
		a, b := lineAt(have, i), lineAt(should, i)
		if a != b {
			return fmt.Sprintf("line %d is\n  %s\nand should be\n  %s", i+1, a, b)
		}
	}
	return ""
}

func lineAt(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(nothing)"
}

// concurrency lists every bounded component of a node, as the inventory has it.
func concurrency(t *testing.T) string {
	stats := inventory(t)
	var b strings.Builder
	b.WriteString("# What moves between the tasks of a node\n\n")
	b.WriteString("Every queue, lane, bus, snapshot and set of permits, with its bound and what happens when it is full.\n")
	b.WriteString("`GET /debug/inventory` shows the same live. Readiness is what `/readyz` says while it is full or does not move\n")
	b.WriteString("([why](../adr/0031-readiness-is-progress.md)).\n\n")
	b.WriteString("| service | name | kind | bound | waiting | when full | readiness | from | to | one for each |\n|---|---|---|---:|---:|---|---|---|---|---|\n")
	for _, stat := range stats {
		fmt.Fprintf(&b, "| %s | `%s` | %s | %d | %s | %s | %s | %s | %s | %s |\n", stat.Service, stat.Name, stat.Kind, stat.Cap,
			waiting(stat), whenFull(stat), stat.Readiness(), stat.From, stat.To, stat.Each)
	}
	return b.String()
}

// whenFull is what a full component does. One that is shared by classes (topics,
// peers, clients) first makes room at the cost of the class that holds most.
func whenFull(stat flow.Stat) string {
	if stat.Displaces {
		return "displaces from the largest class, else " + stat.Policy
	}
	return stat.Policy
}

// inventory is that of a node which has connected to another one, subscribed to
// a topic and served an object: some components exist only for each of these;
// and the components of nodes that keep their data in a folder or on engines.
func inventory(t *testing.T) []flow.Stat {
	t.Helper()
	ours, a := startNode(t, "a")
	_, b := startNode(t, "b")
	connectPeers(t, a, b)
	connectPeers(t, b, a)
	subscription, err := a.Subscribe(t.Context(), "house")
	if err != nil {
		t.Fatal(err)
	}
	defer subscription.Close()
	object, err := a.Put(t.Context(), strings.NewReader("hello"), client.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err = b.Fetch(t.Context(), object.Address, ""); err == nil {
			known := ours.Inventory().Read()
			all := slices.Concat(known, extraComponents(t, known))
			slices.SortStableFunc(all, func(a, b flow.Stat) int { return strings.Compare(a.Service, b.Service) })
			return all
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// extraComponents lists the components that a whole node in memory does not have:
// those of a node in a folder with TLS, of one whose objects and messages are on
// other servers, and of processes that have only parts. The nodes are made and do
// not run.
func extraComponents(t *testing.T, known []flow.Stat) (more []flow.Stat) {
	t.Helper()
	bucket := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<ListBucketResult/>") // an empty one
	}))
	defer bucket.Close()
	certificate, key, identity := nodeKeys(t)
	for _, o := range []node.Options{
		{Persist: t.TempDir(), Sources: config.Sources{Flags: []config.Flag{
			{Key: "http.cert_file", Value: certificate, Name: "test"}, {Key: "http.key_file", Value: key, Name: "test"},
		}}},
		{Sources: config.Sources{Flags: []config.Flag{
			{Key: "store.url", Value: "s3+" + bucket.URL + "/bucket/", Name: "test"}, {Key: "store.access_key", Value: "a", Name: "test"}, {Key: "store.secret_key", Value: "b", Name: "test"},
			{Key: "mailbox.url", Value: "nats://127.0.0.1:1", Name: "test"},
		}}},
		partOptions(identity, "gateway"),
		partOptions(identity, "registry"),
	} {
		o.Unconfined, o.Log, o.Socket = true, t.Output(), fmt.Sprintf("micronode-house-%d-c", os.Getpid())
		o.Sources.Flags = append(o.Sources.Flags, allFacetFlags...)
		n, err := node.New(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, stat := range n.Inventory().Read() {
			same := func(other flow.Stat) bool { return other.Service == stat.Service && other.Name == stat.Name }
			if !slices.ContainsFunc(known, same) && !slices.ContainsFunc(more, same) {
				more = append(more, stat)
			}
		}
		over, stop := context.WithCancel(context.Background())
		stop()
		_, _ = n.Run(over) // releases what it was made with
	}
	return more
}

// partOptions are those of a process with one part, whose others are at sockets
// that nobody has.
func partOptions(identity, part string) node.Options {
	flags := []config.Flag{{Key: "node.identity", Value: "file:" + identity, Name: "test"}, {Key: "auth.root", Value: strings.Repeat("6b", 32), Name: "test"}}
	for _, other := range node.PartNames() {
		flags = append(flags, config.Flag{Key: "node.parts." + other, Value: fmt.Sprintf("@micronode-house-%d-%s", os.Getpid(), other), Name: "test"})
	}
	return node.Options{Only: []string{part}, Sources: config.Sources{Flags: flags}}
}

// nodeKeys writes a certificate with its key, and an identity.
func nodeKeys(t *testing.T) (certificate, key, identity string) {
	t.Helper()
	folder := t.TempDir()
	certificate, key, identity = filepath.Join(folder, "node.pem"), filepath.Join(folder, "node.key"), filepath.Join(folder, "identity.key")
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.Must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour)}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	testkit.Must(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), 0o600))
	testkit.Must(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	own, err := node.NewIdentity()
	testkit.Must(t, err)
	var text bytes.Buffer
	testkit.Must(t, own.WritePEM(&text))
	testkit.Must(t, os.WriteFile(identity, text.Bytes(), 0o600))
	return certificate, key, identity
}

// allFacetFlags make a node listen on ports of its own, with all facets.
var allFacetFlags = []config.Flag{
	{Key: "http.addr", Value: "127.0.0.1:0", Name: "test"}, {Key: "admin.addr", Value: "127.0.0.1:0", Name: "test"}, {Key: "overlay.addr", Value: "127.0.0.1:0", Name: "test"},
	{Key: "facets.feed.enabled", Value: "true", Name: "test"}, {Key: "facets.graph.enabled", Value: "true", Name: "test"}, {Key: "facets.search.enabled", Value: "true", Name: "test"}, {Key: "facets.media.enabled", Value: "true", Name: "test"},
}

// startNode starts a node that runs until the test ends, and makes a client of
// it.
func startNode(t *testing.T, name string) (*node.Node, *client.Client) {
	t.Helper()
	socket := fmt.Sprintf("micronode-house-%d-%s", os.Getpid(), name)
	n, err := node.New(t.Context(), node.Options{
		Unconfined: true, Log: t.Output(), Socket: socket,
		Sources: config.Sources{Flags: allFacetFlags},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = n.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	c, err := client.New(client.Options{Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return n, c
}

// connectPeers makes one node dial another.
func connectPeers(t *testing.T, one, other *client.Client) {
	t.Helper()
	status, err := other.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := one.AddPeer(t.Context(), status.PeerID+"@"+status.Listen.Overlay); err != nil {
		t.Fatal(err)
	}
}

// waiting is how many callers may wait, for kinds that have a waiting list.
func waiting(stat flow.Stat) string {
	if stat.Kind == "lane" || stat.Kind == "permits" {
		return fmt.Sprint(stat.Waiting)
	}
	return ""
}

// faults lists every kind of error and what it means on each surface.
func faults(*testing.T) string {
	var b strings.Builder
	b.WriteString("# Every kind of error\n\n")
	b.WriteString("`code` is what a problem document carries and what the metrics count; the exit code is that of the command line.\n")
	b.WriteString("Besides these, a command exits with 0 when it did what it was asked, and with 2 when it was used wrongly.\n\n")
	b.WriteString("| code | HTTP | exit | try again | what to do |\n|---|---:|---:|---|---|\n")
	for _, kind := range fault.Kinds() {
		status := "–"
		if kind.HasStatus() {
			status = fmt.Sprint(kind.Status())
		}
		retry := "no"
		if kind.Retryable() {
			retry = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %d | %s | %s |\n", kind.Code(), status, kind.Exit(), retry, kind.Next())
	}
	return b.String()
}

// settings lists everything that can be configured.
func settings(t *testing.T) string {
	defaults, err := node.Defaults("micronode")
	if err != nil {
		t.Fatal(err)
	}
	return string(config.Reference(defaults))
}
