package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// unguardedDialers lists the files that dial without internal/netguard, and the
// source of the addresses that they dial. An address from a stranger is never a
// reason.
var unguardedDialers = map[string]string{
	"client/client.go":                  "the node that whoever uses the client has named",
	"client/transport.go":               "a socket on this machine, named by whoever uses the client",
	"cmd/micronode/release.go":          "the release that the operator has named",
	"internal/gateway/part_addr.go":     "a part of the same node, named in node.parts",
	"internal/capability/socket.go":     "the abstract sockets of this user on this machine",
	"internal/mailbox/nats/spec.go":     "the server in mailbox.nats",
	"internal/certificate/authority.go": "the authority in http.acme.directory",
	"internal/observe/trace_client.go":  "the collector in trace.endpoint",
	"internal/store/s3/spec.go":         "the server in store.s3",
	"internal/demo/network.go":          "the nodes that the demo itself has started",
	"internal/node/lan.go":              "an address of documentation, to which nothing is sent",
}

// Code that dials an address from elsewhere checks it with netguard first. New
// code that dials without it fails here, until it has the guard or a reason.
func TestDialersAreGuarded(t *testing.T) {
	used := map[string]bool{}
	for _, root := range []string{"internal", "cmd", "client"} {
		err := filepath.WalkDir(filepath.Join("../..", root), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			name := filepath.ToSlash(strings.TrimPrefix(path, "../../"))
			if testSupport[filepath.ToSlash(filepath.Dir(name))] != "" {
				return nil // not part of the product
			}
			for _, where := range bareDialers(t, path) {
				if used[name] = true; unguardedDialers[name] == "" {
					t.Errorf("%s:%s: give it netguard.Control, or say in internal/house/dialers_test.go whose word it follows", name, where)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name := range unguardedDialers {
		if !used[name] {
			t.Errorf("%s does not dial without the guard: take it off the list", name)
		}
	}
}

// bareDialers finds what dials without a guard in a file.
func bareDialers(t *testing.T, path string) (found []string) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		what := ""
		switch n := n.(type) {
		case *ast.CompositeLit:
			what = bareLiteral(n)
		case *ast.SelectorExpr:
			if name := selectorName(n); slices.Contains([]string{"net.Dial", "net.DialTimeout", "net.DialTCP", "tls.Dial", "tls.DialWithDialer", "http.Get", "http.Head", "http.Post", "http.PostForm", "http.DefaultClient", "http.DefaultTransport"}, name) {
				what = name
			}
		case *ast.ValueSpec:
			if name := selectorName(n.Type); len(n.Values) == 0 && name == "net.Dialer" {
				what = "var " + name
			}
		}
		if what != "" {
			found = append(found, fmt.Sprintf("%d: %s", files.Position(n.Pos()).Line, what))
		}
		return true
	})
	return found
}

// bareLiteral names a dialer, a transport or a client that is made without a
// dial function.
func bareLiteral(n *ast.CompositeLit) string {
	wants := map[string][]string{"net.Dialer": {"Control", "ControlContext"}, "tls.Dialer": {"NetDialer"}, "http.Transport": {"DialContext"}, "http.Client": {"Transport"}}
	name := selectorName(n.Type)
	fields, dials := wants[name]
	if !dials {
		return ""
	}
	for _, element := range n.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			if key, ok := pair.Key.(*ast.Ident); ok && slices.Contains(fields, key.Name) {
				return ""
			}
		}
	}
	return name
}

// selectorName is package.Name as it is in the source.
func selectorName(n ast.Expr) string {
	if s, ok := n.(*ast.SelectorExpr); ok {
		if pkg, ok := s.X.(*ast.Ident); ok {
			return pkg.Name + "." + s.Sel.Name
		}
	}
	return ""
}
