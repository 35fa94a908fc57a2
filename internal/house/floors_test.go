// Package house holds the rules that no single package can check: who may
// import whom, and that the generated documents say what the code does. It has
// only tests.
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
)

// floors says on which floor each package lives. A package imports only from
// lower floors; neighbours on one floor do not import each other.
var floors = map[string]int{
	"b3":    0,
	"fault": 0,

	"internal/disk":      1,
	"internal/flow":      1,
	"internal/supervise": 1,

	"internal/observe":    2,
	"internal/config":     2,
	"internal/capability": 2,
	"internal/amnesia":    2,
	"internal/oap":        2,
	"internal/logbook":    2,

	"internal/ingress": 3,

	"internal/store":   4,
	"internal/mailbox": 4,

	"internal/store/s3": 5, // a driver: it sees the store, and only internal/node sees it

	"internal/overlay":  5,
	"internal/index":    5,
	"internal/edge":     5,
	"internal/registry": 5,

	"internal/registry/keyfile": 5, // what signers keep on their own machines; the node never sees it
	"internal/registry/etcd":    6, // a driver, like the one of the store
	"internal/index/kad":        6, // another: the network in which providers are found
	"internal/index/bleve":      6, // another: where words are looked up
	"internal/mailbox/nats":     5, // another: messages on other machines

	"internal/facet":   6,
	"internal/gateway": 7,
	"internal/node":    8,
	"cmd/micronode":    9,
	"gates":            10, // tests of the binary, from outside

	"client": 1, // the SDK shows b3 and fault, and nothing else of ours
}

// rooms are packages inside a package: parts of its work that read better
// apart. A room has one door, and it leads to its parent: nobody else may
// import it. What a room may import is what its parent may.
var rooms = map[string]string{
	"internal/edge/pack":           "internal/edge",
	"internal/edge/pack/pmtiles":   "internal/edge/pack",
	"internal/edge/pack/mbtiles":   "internal/edge/pack",
	"internal/edge/fill":           "internal/edge",
	"internal/edge/fill/freshness": "internal/edge/fill",
	"internal/overlay/session":     "internal/overlay",
	"internal/overlay/gossip":      "internal/overlay",
	"internal/overlay/stream":      "internal/overlay",
	"internal/overlay/ask":         "internal/overlay",
	"internal/index/record":        "internal/index",
	"internal/index/graph":         "internal/index",
	"internal/index/rank":          "internal/index",
	"internal/index/hedge":         "internal/index",
	"internal/index/breaker":       "internal/index",
	"internal/index/cache":         "internal/index",
	"internal/index/delegated":     "internal/index",
	"internal/registry/ledger":     "internal/registry",
	"internal/facet/thumb":         "internal/facet",
	"internal/registry/tree":       "internal/registry",
	"internal/registry/bundle":     "internal/registry",
	"internal/registry/journal":    "internal/registry",
}

// passages are doors between two rooms of one parent: the first may enter the
// second, never the other way round.
var passages = map[[2]string]bool{
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
	{"internal/registry/etcd", "internal/registry/ledger"}:    true, // a driver implements what a room asks for
	{"internal/registry/etcd", "internal/registry/journal"}:   true,
}

// clientMay is what the SDK may import: it is compiled into other people's
// programs.
var clientMay = map[string]bool{"b3": true, "fault": true}

// support lists packages that exist for tests. They may import their own
// parent and what the parent may; no product code may import them.
var support = map[string]string{
	"internal/flow/explore":    "internal/flow",
	"internal/store/storetest": "internal/store",
	"internal/disk/disktest":   "internal/disk",

	"internal/mailbox/mailboxtest": "internal/mailbox",
	"internal/node/nodetest":       "internal/node",

	"internal/edge/pack/packtest": "internal/edge/pack",

	"internal/registry/journal/journaltest": "internal/registry/journal",
	"internal/registry/registrytest":        "internal/registry",
}

const module = "micronode"

type listed struct {
	ImportPath string
	Imports    []string
}

func TestFloors(t *testing.T) {
	for _, pkg := range list(t) {
		from := strings.TrimPrefix(pkg.ImportPath, module+"/")
		if from == "internal/house" {
			continue
		}
		if _, known := floors[from]; !known && support[from] == "" && rooms[from] == "" {
			t.Errorf("%s has no floor: give it one in internal/house/floors_test.go and say in ARCHITECTURE.md what it is for", from)
			continue
		}
		for _, path := range pkg.Imports {
			if to, ours := strings.CutPrefix(path, module+"/"); ours {
				if reason := refuse(from, to); reason != "" {
					t.Errorf("%s imports %s: %s", from, to, reason)
				}
			}
		}
	}
}

// refuse says why one package may not import another, or "" if it may.
func refuse(from, to string) string {
	if support[to] != "" {
		return "it exists for tests; import it from a _test.go file only"
	}
	if parent := support[from]; parent != "" {
		if to == parent {
			return ""
		}
		from = parent
	}
	if parent := rooms[to]; parent != "" {
		if from == parent || passages[[2]string{from, to}] {
			return ""
		}
		return "it is a room of " + parent + ", and only that package may enter; ask it instead"
	}
	for rooms[from] != "" {
		from = rooms[from]
	}
	if from == "client" && !clientMay[to] {
		return "the SDK may show b3 and fault only; declare what it needs in client/"
	}
	above, below := floors[from], floors[to]
	switch {
	case below < above:
		return ""
	case below == above:
		return fmt.Sprintf("both are on floor %d; declare a small interface where it is needed and let internal/node pass the other in", above)
	default:
		return fmt.Sprintf("floor %d may not look up to floor %d; move the shared part down, or pass it in from above", above, below)
	}
}

// TestTheFloorsCanRefuse makes sure that the rule is not one that always holds.
func TestTheFloorsCanRefuse(t *testing.T) {
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
		"a package sees its room":   {"internal/edge", "internal/edge/pack", false},
		"a room sees its own room":  {"internal/edge/pack", "internal/edge/pack/pmtiles", false},
		"a room sees what is below": {"internal/edge/fill/freshness", "internal/store", false},
		"a room has one door":       {"internal/node", "internal/edge/pack", true},
		"rooms are strangers":       {"internal/edge/fill", "internal/edge/pack", true},
		"a room sees no parent":     {"internal/edge/pack", "internal/edge", true},
		"a driver sees its store":   {"internal/store/s3", "internal/store", false},
		"nobody sees a driver":      {"internal/edge", "internal/store/s3", true},
	} {
		if reason := refuse(c.from, c.to); (reason != "") != c.refused {
			t.Errorf("%s: %s -> %s: %q", name, c.from, c.to, reason)
		}
	}
}

// list asks the go command for every package of the module.
func list(t *testing.T) []listed {
	t.Helper()
	command := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
	command.Dir = "../.."
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var packages []listed
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var pkg listed
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
