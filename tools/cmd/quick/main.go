// Command quick checks what changed since main: it vets and lints the changed
// packages, and runs their tests and those of the packages that import them,
// without the race detector and without coverage. It is for the minutes between
// two edits, and replaces nothing of make test.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	folder := flag.String("C", ".", "`folder` of the module")
	built := flag.String("built", ".build", "`folder` of staticcheck and lockblock, from that of the module")
	list := flag.Bool("n", false, "print the packages, and run nothing")
	flag.Parse()
	if err := run(*folder, *built, *list); err != nil {
		fmt.Fprintln(os.Stderr, "quick:", err)
		os.Exit(1)
	}
}

func run(folder, built string, list bool) error {
	packages, err := listPackages(folder)
	if err != nil {
		return err
	}
	files, err := changedFiles(folder)
	if err != nil {
		fmt.Printf("quick: git does not say what changed (%v): all packages\n", err)
		files = []string{"go.mod"}
	}
	changed := packagesOf(files, packages)
	tested := withImporters(changed, packages)
	fmt.Printf("quick: %d files changed since main; lint %s; test %s\n", len(files), summary(changed), summary(tested))
	if list {
		return nil
	}
	if built, err = filepath.Abs(filepath.Join(folder, built)); err != nil {
		return err
	}
	return checkAll(folder, built, files, changed, tested)
}

// checkAll stops at the first step that fails.
func checkAll(folder, built string, files, changed, tested []string) error {
	var steps [][]string
	if len(changed) > 0 {
		steps = append(steps,
			append([]string{"go", "vet", "-vettool=" + filepath.Join(built, "lockblock")}, changed...),
			append([]string{filepath.Join(built, "staticcheck")}, changed...),
			append([]string{"go", "test", "-vet=off"}, tested...))
	}
	for _, other := range []string{"tools", "bench"} { // modules of their own, which import no package of ours or nearly all
		if slices.ContainsFunc(files, func(file string) bool { return strings.HasPrefix(file, other+"/") }) {
			steps = append(steps, []string{"go", "-C", other, "vet", "./..."}, []string{"go", "-C", other, "test", "./..."})
		}
	}
	if err := checkFormat(folder, files); err != nil {
		return err
	}
	for _, step := range steps {
		command := exec.Command(step[0], step[1:]...)
		command.Dir, command.Stdout, command.Stderr = folder, os.Stdout, os.Stderr
		if err := command.Run(); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(step[:min(len(step), 3)], " "), err)
		}
	}
	return nil
}

func checkFormat(folder string, files []string) error {
	arguments := []string{"-l"}
	for _, file := range files {
		if _, err := os.Stat(filepath.Join(folder, file)); err == nil && strings.HasSuffix(file, ".go") && !strings.Contains(file, "/testdata/") {
			arguments = append(arguments, file)
		}
	}
	if len(arguments) == 1 {
		return nil
	}
	command := exec.Command("gofmt", arguments...)
	command.Dir = folder
	if out, err := command.CombinedOutput(); err != nil || len(out) > 0 {
		return fmt.Errorf("run gofmt -w on: %s", bytes.TrimSpace(out))
	}
	return nil
}

// changedFiles are those of the commits since main, and those that are not
// committed yet, new ones included.
func changedFiles(folder string) ([]string, error) {
	base, err := git(folder, "merge-base", "HEAD", "origin/main")
	if err != nil {
		base, err = git(folder, "merge-base", "HEAD", "main")
	}
	if err != nil {
		return nil, err
	}
	committed, err := git(folder, "diff", "--relative", "--name-only", base)
	if err != nil {
		return nil, err
	}
	untracked, err := git(folder, "ls-files", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	return strings.Fields(committed + "\n" + untracked), nil
}

func git(folder string, arguments ...string) (string, error) {
	command := exec.Command("git", arguments...)
	command.Dir = folder
	out, err := command.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		return "", fmt.Errorf("git %s: %s", arguments[0], bytes.TrimSpace(failed.Stderr))
	}
	return strings.TrimSpace(string(out)), err
}

// goPackage is a package of the module, as go list prints it.
type goPackage struct {
	ImportPath                         string
	Module                             struct{ Path string }
	Imports, TestImports, XTestImports []string
}

// folder is where the package is, from the folder of its module.
func (p goPackage) folder() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, p.Module.Path), "/")
}

func listPackages(folder string) (all []goPackage, err error) {
	command := exec.Command("go", "list", "-json=ImportPath,Module,Imports,TestImports,XTestImports", "./...")
	command.Dir = folder
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var one goPackage
		switch err := decoder.Decode(&one); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		}
		all = append(all, one)
	}
}

// packagesOf are the packages that the files belong to: a file of testdata
// belongs to the package above it. A change of the dependencies concerns all. A
// file that is in no package may still be one that internal/house reads.
func packagesOf(files []string, packages []goPackage) (changed []string) {
	byFolder := map[string]string{}
	for _, p := range packages {
		byFolder[p.folder()] = p.ImportPath
	}
	found := map[string]bool{}
	for _, file := range files {
		if file == "go.mod" || file == "go.sum" {
			for _, p := range packages {
				found[p.ImportPath] = true
			}
			continue
		}
		folder := path.Dir(file)
		for ; folder != "." && byFolder[folder] == ""; folder = path.Dir(folder) {
		}
		if folder == "." && byFolder[""] == "" {
			folder = "internal/house"
		}
		found[byFolder[strings.TrimPrefix(folder, ".")]] = true
	}
	delete(found, "")
	for name := range found {
		changed = append(changed, name)
	}
	slices.Sort(changed)
	return changed
}

// withImporters adds the packages that import a changed one, also in a test.
func withImporters(changed []string, packages []goPackage) []string {
	all := slices.Clone(changed)
	for _, p := range packages {
		imports := slices.Concat(p.Imports, p.TestImports, p.XTestImports)
		if slices.ContainsFunc(imports, func(name string) bool { return slices.Contains(changed, name) }) {
			all = append(all, p.ImportPath)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// summary names a few packages, and counts many.
func summary(packages []string) string {
	switch {
	case len(packages) == 0:
		return "nothing"
	case len(packages) > 8:
		return fmt.Sprintf("%d packages", len(packages))
	}
	return strings.Join(packages, " ")
}
