package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/types"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/tools/go/packages"
)

type platform struct{ system, processor string }

func parsePlatform(name string) (platform, error) {
	system, processor, ok := strings.Cut(name, "/")
	if !ok || system == "" || types.SizesFor("gc", processor) == nil {
		return platform{}, fmt.Errorf("%q is no platform: want GOOS/GOARCH", name)
	}
	return platform{system, processor}, nil
}

// check returns what a compiler for the platform would refuse, sorted.
func (p platform) check(sources *sources, request request, dependencies *dependencies, patterns []string) ([]string, error) {
	loaded, err := packages.Load(&packages.Config{
		Mode:       packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedDeps | packages.NeedModule,
		Dir:        request.folder,
		Tests:      request.tests,
		Env:        append(os.Environ(), "GOOS="+p.system, "GOARCH="+p.processor, "CGO_ENABLED=0", "GOFLAGS=-mod=readonly"),
		BuildFlags: []string{"-tags=" + request.tags},
	}, patterns...)
	if err != nil {
		return nil, err
	}

	// A package waits for those that it imports, and only then for a processor, so no order can stop them all.
	var (
		work     sync.WaitGroup
		mu       sync.Mutex
		problems []string
	)
	busy := make(chan struct{}, runtime.GOMAXPROCS(0))
	all := map[string]*checked{}
	packages.Visit(loaded, nil, func(pkg *packages.Package) {
		all[pkg.ID] = &checked{ready: make(chan struct{})}
		if pkg.Module != nil && !pkg.Module.Main {
			dependencies.add(p.system, pkg.PkgPath)
		}
	})
	packages.Visit(loaded, nil, func(pkg *packages.Package) {
		work.Go(func() {
			result := all[pkg.ID]
			defer close(result.ready)
			for _, imported := range pkg.Imports {
				<-all[imported.ID].ready
			}
			busy <- struct{}{}
			defer func() { <-busy }()
			var found []string
			result.types, found = p.checkPackage(sources, pkg, all)
			if found = relative(found, request.folder); len(found) > 0 {
				mu.Lock()
				problems = append(problems, found...)
				mu.Unlock()
			}
		})
	})
	work.Wait()
	slices.Sort(problems)
	return slices.Compact(problems), nil
}

// checked is a package whose types are known once ready is closed.
type checked struct {
	ready chan struct{}
	types *types.Package
}

// checkPackage checks function bodies of the module's own packages only: what others declare is enough to use them.
func (p platform) checkPackage(sources *sources, pkg *packages.Package, all map[string]*checked) (*types.Package, []string) {
	if pkg.PkgPath == "unsafe" {
		return types.Unsafe, nil
	}
	own := pkg.Module != nil && pkg.Module.Main
	var problems []string
	for _, problem := range pkg.Errors {
		problems = append(problems, problem.Error())
	}
	var files []*ast.File
	for _, name := range pkg.GoFiles {
		file, err := sources.file(name, own)
		if err != nil {
			problems = append(problems, err.Error())
			continue
		}
		files = append(files, file)
	}
	config := types.Config{
		Sizes:            types.SizesFor("gc", p.processor),
		IgnoreFuncBodies: !own,
		Importer: importer(func(path string) (*types.Package, error) {
			imported := pkg.Imports[path]
			if path == "unsafe" {
				return types.Unsafe, nil
			}
			if imported == nil || all[imported.ID].types == nil {
				return nil, errors.New("not found")
			}
			return all[imported.ID].types, nil
		}),
		Error: func(err error) { problems = append(problems, err.Error()) },
	}
	if pkg.Module != nil && pkg.Module.GoVersion != "" {
		config.GoVersion = "go" + pkg.Module.GoVersion
	}
	result, _ := config.Check(pkg.PkgPath, sources.positions, files, nil)
	return result, problems
}

type importer func(path string) (*types.Package, error)

func (i importer) Import(path string) (*types.Package, error) { return i(path) }

// relative names files from the module's folder, as a compiler does.
func relative(problems []string, folder string) []string {
	root, err := filepath.Abs(folder)
	if err != nil {
		return problems
	}
	for i := range problems {
		problems[i] = strings.ReplaceAll(problems[i], root+string(filepath.Separator), "")
	}
	return problems
}
