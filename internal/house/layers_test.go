// Package house holds the rules that no single package can check: which package
// may import which, and that the generated documents agree with the code. It
// has only tests.
package house

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// layers is the layer of each package. A package imports only from lower
// layers; packages of one layer do not import each other.
var layers = map[string]int{
	"b3":                 0,
	"fault":              0,
	"internal/corr":      0,
	"internal/tokentext": 0,
	"internal/typo":      0,

	"internal/breaker":   1,
	"internal/disk":      1,
	"internal/flow":      1,
	"internal/netguard":  1,
	"internal/supervise": 1,

	"internal/bandwidth":   2,
	"internal/certificate": 2,
	"internal/chunkmap":    2, // what the overlay gives and the index asks for
	"internal/observe":     2,
	"internal/config":      2,
	"internal/capability":  2,
	"internal/amnesia":     2,
	"internal/oap":         2,
	"internal/terminal":    2, // what commands show; the node never sees it
	"internal/wal":         2,

	"internal/ingress":    3,
	"internal/invitation": 3, // a string that the overlay and commands read and write

	"internal/store":   4,
	"internal/mailbox": 4,

	"internal/store/s3": 5, // a driver: it sees the store, and only internal/node sees it

	"internal/overlay":  5,
	"internal/index":    5,
	"internal/search":   5,
	"internal/graph":    5,
	"internal/edge":     5,
	"internal/registry": 5,

	"internal/registry/keyfile":  5, // what signers keep on their own machines; the node never sees it
	"internal/registry/approval": 6, // what signers examine and sign, on their own machines too
	"internal/registry/etcd":     6, // a driver, like the one of the store
	"internal/index/kad":         6, // another: the network in which providers are found
	"internal/search/bleve":      6, // another: where words are looked up
	"internal/mailbox/nats":      5, // another: messages on other machines

	"internal/top":     3, // what a command does; the node never sees it
	"internal/loadgen": 3, // the same
	"internal/demo":    7, // the same: it starts nodes as processes, and signs as signers do

	"internal/facet":   6,
	"internal/gateway": 7,
	"internal/page":    7, // what a browser shows of the node; its sources are in web
	"internal/node":    8,
	"cmd/micronode":    9,
	"gates":            10, // tests of the binary, from outside

	"client": 1, // the SDK shows b3 and fault, and nothing else of ours
}

// subpackages are packages inside a package: parts of its work that read better
// apart. Only the parent may import a subpackage. A subpackage may import what
// its parent may.
var subpackages = map[string]string{
	"internal/edge/pack":           "internal/edge",
	"internal/edge/pack/pmtiles":   "internal/edge/pack",
	"internal/edge/pack/mbtiles":   "internal/edge/pack",
	"internal/edge/fill":           "internal/edge",
	"internal/edge/fill/freshness": "internal/edge/fill",
	"internal/overlay/introduce":   "internal/overlay",
	"internal/overlay/nearby":      "internal/overlay",
	"internal/overlay/session":     "internal/overlay",
	"internal/overlay/gossip":      "internal/overlay",
	"internal/overlay/stream":      "internal/overlay",
	"internal/overlay/ask":         "internal/overlay",
	"internal/index/record":        "internal/index",
	"internal/index/rank":          "internal/index",
	"internal/index/hedge":         "internal/index",
	"internal/index/transfer":      "internal/index",
	"internal/index/cache":         "internal/index",
	"internal/index/delegated":     "internal/index",
	"internal/registry/ledger":     "internal/registry",
	"internal/facet/thumb":         "internal/facet",
	"internal/registry/tree":       "internal/registry",
	"internal/registry/bundle":     "internal/registry",
	"internal/registry/journal":    "internal/registry",
}

// siblingImports are allowed imports between two subpackages of one parent: the
// first may import the second, never the other way round.
var siblingImports = map[[2]string]bool{
	{"internal/overlay/gossip", "internal/overlay/session"}: true,
	{"internal/overlay/stream", "internal/overlay/session"}: true,
	{"internal/overlay/ask", "internal/overlay/session"}:    true,

	{"internal/index/rank", "internal/index/record"}:      true,
	{"internal/index/hedge", "internal/index/record"}:     true,
	{"internal/index/cache", "internal/index/record"}:     true,
	{"internal/index/delegated", "internal/index/record"}: true,
	{"internal/index/kad", "internal/index/record"}:       true, // a driver implements what the index asks for
	{"internal/index/kad", "internal/index/hedge"}:        true,

	{"internal/registry/bundle", "internal/registry/ledger"}:  true,
	{"internal/registry/bundle", "internal/registry/tree"}:    true,
	{"internal/registry/journal", "internal/registry/ledger"}: true,
	{"internal/registry/etcd", "internal/registry/ledger"}:    true, // a driver implements an interface of a subpackage
	{"internal/registry/etcd", "internal/registry/journal"}:   true,
}

// clientImports is what the SDK may import: it is compiled into other people's
// programs.
var clientImports = map[string]bool{"b3": true, "fault": true, "internal/corr": true}

// testSupport lists packages that exist for tests. They may import their own
// parent and what the parent may; no product code may import them.
var testSupport = map[string]string{
	"internal/testkit":         "fault", // for all tests, and so it sees no product package but this
	"internal/flow/explore":    "internal/flow",
	"internal/store/storetest": "internal/store",
	"internal/disk/disktest":   "internal/disk",

	"internal/ingress/ingresstest": "internal/ingress",

	"internal/mailbox/mailboxtest": "internal/mailbox",
	"internal/node/nodetest":       "internal/node",

	"internal/edge/pack/packtest": "internal/edge/pack",

	"internal/registry/journal/journaltest": "internal/registry/journal",
	"internal/registry/registrytest":        "internal/registry",
	"internal/registry/tampertest":          "internal/registry",
}

const module = "micronode"

type goPackage struct {
	ImportPath string
	Imports    []string
}

func TestFloors(t *testing.T) {
	for _, pkg := range goList(t) {
		from := strings.TrimPrefix(pkg.ImportPath, module+"/")
		if from == "internal/house" {
			continue
		}
		if _, known := layers[from]; !known && testSupport[from] == "" && subpackages[from] == "" {
			t.Errorf("%s has no floor: give it one in internal/house/layers_test.go and say in ARCHITECTURE.md what it is for", from)
			continue
		}
		for _, path := range pkg.Imports {
			if to, ours := strings.CutPrefix(path, module+"/"); ours {
				if reason := importError(from, to); reason != "" {
					t.Errorf("%s imports %s: %s", from, to, reason)
				}
			}
		}
	}
}

// importError says why one package may not import another, or "" if it may.
func importError(from, to string) string {
	if to == "internal/testkit" && testSupport[from] != "" {
		return ""
	}
	if testSupport[to] != "" {
		return "it exists for tests; import it from a _test.go file only"
	}
	if parent := testSupport[from]; parent != "" {
		if to == parent {
			return ""
		}
		from = parent
	}
	if parent := subpackages[to]; parent != "" {
		if from == parent || siblingImports[[2]string{from, to}] {
			return ""
		}
		return "it is a room of " + parent + ", and only that package may enter; ask it instead"
	}
	for subpackages[from] != "" {
		from = subpackages[from]
	}
	if from == "client" && !clientImports[to] {
		return "the SDK may import b3, fault and internal/corr only; declare what it needs in client/"
	}
	above, below := layers[from], layers[to]
	switch {
	case below < above:
		return ""
	case below == above:
		return fmt.Sprintf("both are on floor %d; declare a small interface where it is needed and let internal/node pass the other in", above)
	default:
		return fmt.Sprintf("floor %d may not look up to floor %d; move the shared part down, or pass it in from above", above, below)
	}
}

// TestTheLayersCanRefuse makes sure that the rule is not one that always holds.
func TestTheLayersCanRefuse(t *testing.T) {
	for name, c := range map[string]struct {
		from, to string
		refused  bool
	}{
		"down":                      {"internal/observe", "internal/flow", false},
		"up":                        {"internal/flow", "internal/observe", true},
		"sideways":                  {"internal/supervise", "internal/flow", true},
		"the SDK sees addresses":    {"client", "b3", false},
		"the SDK sees no inside":    {"client", "internal/flow", true},
		"support sees its parent":   {"internal/flow/explore", "internal/flow", false},
		"support sees no neighbour": {"internal/flow/explore", "internal/supervise", true},
		"product sees no support":   {"internal/node", "internal/flow/explore", true},
		"tests share a kit":         {"internal/store/storetest", "internal/testkit", false},
		"product sees no kit":       {"internal/store", "internal/testkit", true},
		"the kit sees faults":       {"internal/testkit", "fault", false},
		"the kit sees no product":   {"internal/testkit", "internal/flow", true},
		"a package sees its room":   {"internal/edge", "internal/edge/pack", false},
		"a room sees its own room":  {"internal/edge/pack", "internal/edge/pack/pmtiles", false},
		"a room sees what is below": {"internal/edge/fill/freshness", "internal/store", false},
		"a room has one door":       {"internal/node", "internal/edge/pack", true},
		"rooms are strangers":       {"internal/edge/fill", "internal/edge/pack", true},
		"a room sees no parent":     {"internal/edge/pack", "internal/edge", true},
		"a driver sees its store":   {"internal/store/s3", "internal/store", false},
		"nobody sees a driver":      {"internal/edge", "internal/store/s3", true},
	} {
		if reason := importError(c.from, c.to); (reason != "") != c.refused {
			t.Errorf("%s: %s -> %s: %q", name, c.from, c.to, reason)
		}
	}
}

// goList asks the go command for every package of the module.
func goList(t *testing.T) []goPackage {
	t.Helper()
	command := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
	command.Dir = "../.."
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var packages []goPackage
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var pkg goPackage
		err := decoder.Decode(&pkg)
		if errors.Is(err, io.EOF) {
			return packages
		}
		if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, pkg)
	}
}
