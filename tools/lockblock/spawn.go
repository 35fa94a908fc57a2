package lockblock

import (
	"fmt"
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/analysis"
)

// spawnFunctions start a goroutine without the word go.
var spawnFunctions = map[string]bool{
	"(*sync.WaitGroup).Go":                      true,
	"time.AfterFunc":                            true,
	"context.AfterFunc":                         true,
	"(*golang.org/x/sync/errgroup.Group).Go":    true,
	"(*golang.org/x/sync/errgroup.Group).TryGo": true,
}

const spawnRemedy = "a goroutine needs an owner that restarts, drains and counts it: use supervise.Service, Pool or Group"

// checkSpawns reports goroutines without an owner. Tests may start their own.
func (c *config) checkSpawns(pass *analysis.Pass, j *reporter) {
	if c.maySpawn(pass.Pkg.Path()) {
		return
	}
	for _, file := range pass.Files {
		if j.inTestFile(file.Pos()) {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				j.reportOnce(n.Pos(), "spawn", "go statement outside supervise and flow: "+spawnRemedy)
			case *ast.Ident:
				if fn, ok := pass.TypesInfo.Uses[n].(*types.Func); ok && spawnFunctions[fn.FullName()] {
					j.reportOnce(n.Pos(), "spawn", fmt.Sprintf("%s starts a goroutine: %s", nameOf(fn, nil), spawnRemedy))
				}
			}
			return true
		})
	}
}
