package lockblock

import (
	"strings"

	"golang.org/x/tools/go/analysis"
)

// Analyzer enforces the rules with the paths of this module. Its flags change the paths.
var Analyzer = newAnalyzer()

const summaryOfRules = `no lock across a wait, only leaves under a lock, no stray goroutines, no nameless queues

A mutex must not be held across anything that can block. Only leaves are locked under another lock. Goroutines are started
by supervise and flow. Buffered channels are flow queues. //lockblock:allow <reason> silences one line.`

// config holds the paths that the rules refer to. Set by flags before the first package is read.
type config struct {
	module   string // packages at and below this path are checked
	flow     string // where the specs live
	spawners string // comma separated: these packages, and those below them, may start goroutines
}

func newAnalyzer() *analysis.Analyzer {
	h := &config{}
	a := &analysis.Analyzer{
		Name:      "lockblock",
		Doc:       summaryOfRules,
		FactTypes: []analysis.Fact{(*summary)(nil), (*leaf)(nil)},
		Run:       func(pass *analysis.Pass) (any, error) { return nil, h.run(pass) },
	}
	a.Flags.StringVar(&h.module, "module", "micronode", "judge packages at and below this path")
	a.Flags.StringVar(&h.flow, "flow", "micronode/internal/flow", "package of the specs")
	a.Flags.StringVar(&h.spawners, "spawners", "micronode/internal/supervise,micronode/internal/flow",
		"comma separated packages that, with those below them, may start goroutines")
	return a
}

func (c *config) run(pass *analysis.Pass) error {
	at := pass.Pkg.Path()
	if c.isStandard(at) {
		return nil
	}
	if !c.inModule(at) {
		program := newProgram(c, pass)
		program.summarise()
		program.export()
		return nil
	}
	j := newReporter(pass)
	program := newProgram(c, pass)
	program.readLeaves(j)
	program.summarise()
	program.export()
	program.check(j)
	c.checkSpawns(pass, j)
	c.checkQueues(pass, j)
	j.reportDirectives()
	return nil
}

// inModule reports whether a package belongs to the checked module. Generated test mains and external test packages do.
func (c *config) inModule(pkg string) bool { return within(pkg, c.module) }

// isStandard reports whether a package belongs to the standard library: the first element of its path has no dot.
func (c *config) isStandard(pkg string) bool {
	first, _, _ := strings.Cut(pkg, "/")
	return !strings.Contains(first, ".") && !c.inModule(pkg)
}

// maySpawn reports whether a package may start goroutines.
func (c *config) maySpawn(pkg string) bool {
	for _, root := range strings.Split(c.spawners, ",") {
		if within(pkg, root) {
			return true
		}
	}
	return false
}

// within reports whether pkg is root, a package below it, or a test package of either.
func within(pkg, root string) bool {
	pkg = strings.TrimSuffix(strings.TrimSuffix(pkg, ".test"), "_test")
	return pkg == root || strings.HasPrefix(pkg, root+"/")
}
