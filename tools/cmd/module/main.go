// Command module gives the module another path, everywhere in one step.
//
//	module [-C folder] example.org/micronode
//
// The path is in go.mod, in every import, in the flags of the linker, in lists of packages and in documents; and the modules for tools,
// benchmarks and interoperation refer to it. All tracked text files are read, and what means the path is replaced: the module's own name
// where go.mod has it, and elsewhere the name followed by one of its folders. It changes files, and commits nothing.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

func main() {
	folder := flag.String("C", ".", "`folder` of the module")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: module [-C folder] PATH")
		os.Exit(2)
	}
	changed, err := rename(*folder, flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, "module:", err)
		os.Exit(1)
	}
	fmt.Printf("%d files changed; see git diff, then run make test\n", changed)
}

// rename changes the files of the module in a folder, and returns how many.
func rename(folder, to string) (changed int, err error) {
	if err := module.CheckPath(to); err != nil {
		return 0, err
	}
	text, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	if err != nil {
		return 0, err
	}
	from := modfile.ModulePath(text)
	if from == "" || from == to {
		return 0, fmt.Errorf("the module is %q already", from)
	}
	folders, err := foldersOf(folder)
	if err != nil {
		return 0, err
	}
	files, err := trackedFiles(folder)
	if err != nil {
		return 0, err
	}
	r := newReplacer(from, to, folders)
	for _, name := range files {
		path := filepath.Join(folder, name)
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			continue
		}
		if err != nil {
			return changed, err
		}
		was, err := os.ReadFile(path)
		if err != nil {
			return changed, err
		}
		if bytes.IndexByte(was, 0) >= 0 {
			continue // no text
		}
		is := r.replace(was, strings.HasSuffix(name, "go.mod"))
		if bytes.Equal(was, is) {
			continue
		}
		if err := os.WriteFile(path, is, info.Mode().Perm()); err != nil {
			return changed, err
		}
		changed++
	}
	return changed, nil
}

// foldersOf lists the folders at the top, as parts of a pattern.
func foldersOf(folder string) (list []string, err error) {
	entries, err := os.ReadDir(folder)
	for _, entry := range entries {
		if entry.IsDir() && !strings.HasPrefix(entry.Name(), ".") {
			list = append(list, regexp.QuoteMeta(entry.Name()))
		}
	}
	if err == nil && len(list) == 0 {
		err = errors.New("the module has no folders")
	}
	return list, err
}

// trackedFiles asks git, so that nothing is touched that is not the project's.
func trackedFiles(folder string) ([]string, error) {
	list := exec.Command("git", "ls-files", "-z", "-co", "--exclude-standard")
	list.Dir = folder
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("git does not say which files are the project's: %w", err)
	}
	return slices.DeleteFunc(strings.Split(string(out), "\x00"), func(name string) bool { return name == "" || strings.HasSuffix(name, "go.sum") }), nil
}

// replacer knows where the path stands.
type replacer struct {
	to        []byte
	inside    *regexp.Regexp // the path with a folder, not as the end of a longer path, and not in a URL
	ofModules *regexp.Regexp // the path itself, in a go.mod
	constant  *regexp.Regexp // and in the test of the house, which looks for it in imports
}

func newReplacer(from, to string, folders []string) *replacer {
	name := regexp.QuoteMeta(from)
	return &replacer{
		to:        []byte(to),
		inside:    regexp.MustCompile(`(^|[^\w./~$}-])` + name + `(/(?:` + strings.Join(folders, "|") + `)(?:[^\w-]|$))`),
		ofModules: regexp.MustCompile(`(?m)^(module |replace |require |\t)` + name + `((?:/[\w./-]+)?(?: |$))`),
		constant:  regexp.MustCompile(`(const module = "|"module", ")` + name + `(")`),
	}
}

func (r *replacer) replace(text []byte, isGoMod bool) []byte {
	template := append(append([]byte("${1}"), bytes.ReplaceAll(r.to, []byte("$"), []byte("$$"))...), "${2}"...)
	if isGoMod {
		return r.ofModules.ReplaceAll(text, template)
	}
	text = r.constant.ReplaceAll(text, template)
	for { // two paths may share the character between them
		next := r.inside.ReplaceAll(text, template)
		if bytes.Equal(next, text) {
			return next
		}
		text = next
	}
}
