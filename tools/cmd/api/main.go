// Command api lists what packages export, a line each, so that a change of it is seen in a review.
//
//	api [-C folder] [-update] FILE PACKAGE...
//
// A line that is gone or changed breaks programs that other people wrote; the version then says so. A new line only adds.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	folder := flag.String("C", ".", "`folder` of the module")
	update := flag.Bool("update", false, "write the file")
	flag.Parse()
	if flag.NArg() < 2 {
		fmt.Fprintln(os.Stderr, "usage: api [-C folder] [-update] FILE PACKAGE...")
		os.Exit(2)
	}
	if err := run(*folder, *update, flag.Arg(0), flag.Args()[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(1)
	}
}

func run(folder string, update bool, name string, patterns []string) error {
	loaded, err := packages.Load(&packages.Config{Mode: packages.NeedName | packages.NeedTypes | packages.NeedModule, Dir: folder}, patterns...)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	out.WriteString("# What the public packages export. `make generate` writes this list: a line that goes or changes breaks programs of others.\n")
	for _, pkg := range loaded {
		if len(pkg.Errors) > 0 {
			return pkg.Errors[0]
		}
		fmt.Fprintf(&out, "\n## %s\n\n", strings.TrimPrefix(pkg.PkgPath, pkg.Module.Path+"/"))
		for _, line := range exported(pkg.Types) {
			out.WriteString(line + "\n")
		}
	}
	file := filepath.Join(folder, name)
	if update {
		return os.WriteFile(file, out.Bytes(), 0o644)
	}
	listed, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	was, is := linesOf(listed), linesOf(out.Bytes())
	if maps.Equal(was, is) {
		return nil
	}
	for _, line := range slices.Sorted(maps.Keys(was)) {
		if !is[line] {
			fmt.Println("- " + line)
		}
	}
	for _, line := range slices.Sorted(maps.Keys(is)) {
		if !was[line] {
			fmt.Println("+ " + line)
		}
	}
	return fmt.Errorf("%s is out of date: a line with - breaks programs of others. If it must be, type make generate, and say so in the CHANGELOG", name)
}

func linesOf(text []byte) map[string]bool {
	lines := map[string]bool{}
	section := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "## ") {
			section = line[3:]
		} else if line != "" {
			lines[section+": "+line] = true
		}
	}
	return lines
}

// exported lists the exported names of a package with their types, the fields of structs, and the methods of types.
func exported(pkg *types.Package) []string {
	local := func(other *types.Package) string {
		if other == pkg {
			return ""
		}
		return other.Name()
	}
	var lines []string
	for _, name := range pkg.Scope().Names() {
		object := pkg.Scope().Lookup(name)
		if !object.Exported() {
			continue
		}
		named, isType := object.Type().(*types.Named)
		if _, declared := object.(*types.TypeName); !declared || !isType {
			lines = append(lines, types.ObjectString(object, local))
			continue
		}
		if structure, ok := named.Underlying().(*types.Struct); ok {
			lines = append(lines, "type "+name+" struct")
			for i := range structure.NumFields() {
				if field := structure.Field(i); field.Exported() {
					lines = append(lines, fmt.Sprintf("type %s struct: %s %s %s", name, field.Name(), types.TypeString(field.Type(), local), structure.Tag(i)))
				}
			}
		} else {
			lines = append(lines, types.ObjectString(object, local))
		}
		for method := range types.NewMethodSet(types.NewPointer(named)).Methods() {
			if method.Obj().Exported() {
				lines = append(lines, types.SelectionString(method, local))
			}
		}
	}
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	slices.Sort(lines)
	return lines
}
