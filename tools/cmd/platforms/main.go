// Command platforms checks that packages compile on platforms other than this one.
//
//	platforms [-C folder] [-tags tags] [-tests] [-list file [-update]] GOOS/GOARCH... -- PACKAGE...
//
// It reads the packages and all that they import as a build for that platform would, without C, and checks their types. That finds what
// breaks such builds: a name that only one system has, a number that 32 bits do not hold, a file that no build tag selects. It takes seconds
// where compiling takes minutes, because of packages of other modules it checks what they declare and not what their functions do, and
// because files that platforms share are read once. It compiles no assembly and links nothing: a release does.
//
// With -list it also compares the packages of other modules that each system's programs contain with a list in the repository, so that
// nothing comes in unseen: a change of the list is a line in a review. -update writes the list.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
)

func main() {
	folder := flag.String("C", ".", "`folder` of the module")
	tags := flag.String("tags", "", "build `tags`, separated by commas")
	list := flag.String("list", "", "`file` with the packages of other modules, from the folder of the module")
	update := flag.Bool("update", false, "write that file")
	tests := flag.Bool("tests", false, "check the tests of the packages too")
	flag.Parse()
	dependencies := &dependencies{file: *list, update: *update, systems: map[string]map[string]bool{}}
	if err := run(request{*folder, *tags, *tests}, dependencies, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "platforms:", err)
		os.Exit(1)
	}
}

// request is what is asked of each platform.
type request struct {
	folder, tags string
	tests        bool
}

func run(request request, dependencies *dependencies, arguments []string) error {
	i := slices.Index(arguments, "--")
	if i < 1 || i == len(arguments)-1 {
		return errors.New("usage: platforms [-C folder] [-tags tags] [-tests] [-list file [-update]] GOOS/GOARCH... -- PACKAGE...")
	}
	sources := newSources()
	broken := 0
	for _, name := range arguments[:i] {
		target, err := parsePlatform(name)
		if err != nil {
			return err
		}
		problems, err := target.check(sources, request, dependencies, arguments[i+1:])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, problem := range problems {
			fmt.Printf("%s: %s\n", name, problem)
		}
		if len(problems) > 0 {
			broken++
		}
	}
	if broken > 0 {
		return fmt.Errorf("%d of %d platforms do not compile: %s", broken, i, strings.Join(arguments[i+1:], " "))
	}
	return dependencies.compare(request.folder)
}
