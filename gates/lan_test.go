//go:build gates

package gates

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"micronode/internal/testkit"
)

// Two nodes in one network find each other. Nobody is connected before both have
// accepted. Then an object of one can be had at the other.
func TestNodesOfOneNetworkFindEachOther(t *testing.T) {
	needNetworks(t)
	one, two := newNetnsPair(t)
	a, b := &shell{one, t.TempDir()}, &shell{two, t.TempDir()}
	a.run("micronode run --lan")
	b.run("micronode run --lan")
	accept := func(from *shell) (line string) {
		testkit.WaitFor(t, "the other node is nearby", func() bool {
			_, rest, found := strings.Cut(from.typed("micronode status"), " is nearby, at ")
			line = regexp.MustCompile(`micronode peers accept \w+`).FindString(rest)
			return found && line != ""
		})
		return line
	}
	fromA, fromB := accept(a), accept(b)
	if out := a.typed("micronode peers --json") + b.typed("micronode peers --json"); strings.Contains(out, `"id"`) {
		t.Errorf("somebody is a peer already: %s", out)
	}
	a.typed(fromA)
	b.awaitTyped("micronode peers", "knocked from 10.77.0.1:")
	if out := b.typed("micronode peers --json"); strings.Contains(out, `"active"`) {
		t.Errorf("the second has not accepted, and is connected: %s", out)
	}
	b.typed(fromB)
	b.awaitTyped("micronode peers --json", `"active"`)

	testkit.Must(t, os.WriteFile(filepath.Join(a.folder, "map.txt"), []byte("here be dragons"), 0o600))
	address := regexp.MustCompile(`b3:[0-9a-f]{64}`).FindString(a.typed("micronode put map.txt"))
	if got := b.typed("micronode get " + address); got != "here be dragons" {
		t.Errorf("the second got %q", got)
	}
	report(t, "two nodes with --lan in one network", "found, accepted on both sides, an object fetched", "0 sessions before both accepted")

	// Without the network the node is ready and says what it cannot do; with it
	// again, all is as before.
	mustRun(t, a.netnsCommand("ip", "link", "set", a.veth, "down")...)
	a.awaitTyped("micronode status", "nodes nearby are not found")
	a.typed("micronode status --wait 1s")
	mustRun(t, a.netnsCommand("ip", "link", "set", a.veth, "up")...)
	testkit.WaitFor(t, "nodes are found again", func() bool { return !strings.Contains(a.typed("micronode status"), "nodes nearby are not found") })
}

// awaitTyped types a line until it prints a text.
func (s *shell) awaitTyped(line, text string) {
	s.t.Helper()
	testkit.WaitFor(s.t, line+" prints "+text, func() bool { return strings.Contains(s.typed(line), text) })
}
