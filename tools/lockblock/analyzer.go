package lockblock

import (
	"strings"

	"golang.org/x/tools/go/analysis"
)

// Analyzer enforces the rules with the paths of this module. Its flags change the paths.
var Analyzer = newAnalyzer()

const summaryOfRules = `no lock across a wait, locks in order of rank, no stray goroutines, no nameless queues

A mutex must not be held across anything that can block. Locks nest by strictly increasing rank. Goroutines are started
by supervise and flow. Buffered channels are flow queues. //lockblock:allow <reason> silences one line.`

// house holds the paths that the rules speak about. Set by flags before the first package is read.
type house struct {
	module   string // packages at and below this path are judged
	flow     string // where Mutex, NewMutex and the specs live
	spawners string // comma separated: these packages, and those below them, may start goroutines
}

func newAnalyzer() *analysis.Analyzer {
	h := &house{}
	a := &analysis.Analyzer{
		Name:      "lockblock",
		Doc:       summaryOfRules,
		FactTypes: []analysis.Fact{(*summary)(nil), (*order)(nil)},
		Run:       func(pass *analysis.Pass) (any, error) { return nil, h.run(pass) },
	}
	a.Flags.StringVar(&h.module, "module", "micronode", "judge packages at and below this path")
	a.Flags.StringVar(&h.flow, "flow", "micronode/internal/flow", "package of Mutex, NewMutex and the specs")
	a.Flags.StringVar(&h.spawners, "spawners", "micronode/internal/supervise,micronode/internal/flow",
		"comma separated packages that, with those below them, may start goroutines")
	return a
}

func (h *house) run(pass *analysis.Pass) error {
	at := pass.Pkg.Path()
	if h.standard(at) {
		return nil
	}
	if !h.ours(at) {
		program := newProgram(h, pass)
		program.summarise()
		program.export()
		return nil
	}
	j := newJournal(pass)
	program := newProgram(h, pass)
	program.readLeaves(j)
	program.readRanks(j)
	program.summarise()
	program.export()
	program.judge(j)
	h.judgeSpawns(pass, j)
	h.judgeQueues(pass, j)
	j.flush()
	return nil
}

// ours tells whether a package belongs to the judged module. Generated test mains and external test packages do.
func (h *house) ours(pkg string) bool { return within(pkg, h.module) }

// standard tells whether a package belongs to the standard library: the first element of its path has no dot.
func (h *house) standard(pkg string) bool {
	first, _, _ := strings.Cut(pkg, "/")
	return !strings.Contains(first, ".") && !h.ours(pkg)
}

// maySpawn tells whether a package may start goroutines.
func (h *house) maySpawn(pkg string) bool {
	for _, root := range strings.Split(h.spawners, ",") {
		if within(pkg, root) {
			return true
		}
	}
	return false
}

// within tells whether pkg is root, a package below it, or a test package of either.
func within(pkg, root string) bool {
	pkg = strings.TrimSuffix(strings.TrimSuffix(pkg, ".test"), "_test")
	return pkg == root || strings.HasPrefix(pkg, root+"/")
}
