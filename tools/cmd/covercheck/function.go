package main

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// function is a function with what is covered of it.
type function struct {
	coverage
	file string
	line int
	name string
}

// leastCovered lists the functions of the blocks that are not covered in full, the least covered first; of two alike the one that
// misses more comes first.
func leastCovered(folder string, blocks []block) ([]function, error) {
	byFile := map[string][]block{}
	for _, b := range blocks {
		byFile[b.file] = append(byFile[b.file], b)
	}
	var list []function
	for name, inFile := range byFile {
		found, err := functionsIn(folder, name, inFile)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	list = slices.DeleteFunc(list, func(f function) bool { return f.covered == f.all })
	slices.SortFunc(list, func(a, b function) int {
		return cmp.Or(
			cmp.Compare(a.percent(), b.percent()),
			cmp.Compare(b.all-b.covered, a.all-a.covered),
			cmp.Compare(a.file, b.file),
			cmp.Compare(a.line, b.line),
		)
	})
	return list, nil
}

// functionsIn finds the functions of a source file and counts the blocks in each. Literals in package variables count as one.
func functionsIn(folder, name string, blocks []block) ([]function, error) {
	file, err := sourceOf(folder, name)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	outside := function{file: file, name: "package variables"}
	var list []function
	for _, decl := range parsed.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		f := function{file: file, line: fset.Position(fn.Pos()).Line, name: functionName(fn)}
		from, to := fset.Position(fn.Pos()), fset.Position(fn.End())
		blocks = slices.DeleteFunc(blocks, func(b block) bool {
			inside := !before(b.line, b.column, from) && before(b.line, b.column, to)
			if inside {
				f.add(b)
			}
			return inside
		})
		list = append(list, f)
	}
	for _, b := range blocks {
		outside.add(b)
		if !b.covered && outside.line == 0 {
			outside.line = b.line
		}
	}
	return append(list, outside), nil
}

func before(line, column int, p token.Position) bool {
	return line < p.Line || line == p.Line && column < p.Column
}

func functionName(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	return fmt.Sprintf("(%s).%s", types.ExprString(fn.Recv.List[0].Type), fn.Name.Name)
}

// sourceOf turns the name of a file in a profile, which begins with its import path, into a path below the module's folder.
func sourceOf(folder, name string) (string, error) {
	mod, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	if err != nil {
		return "", errors.New("no go.mod in " + folder)
	}
	rest, ok := strings.CutPrefix(name, modfile.ModulePath(mod)+"/")
	if !ok {
		return "", fmt.Errorf("%s is not in module %s", name, modfile.ModulePath(mod))
	}
	return filepath.Join(folder, filepath.FromSlash(rest)), nil
}
