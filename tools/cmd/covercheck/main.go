package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// The exit codes: below is the answer "no", misuse is no answer.
const (
	reached = 0
	below   = 1
	misuse  = 2
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is the whole command. It prints the table to out and everything that a person must act on to problems.
func run(args []string, out, problems io.Writer) int {
	flags := flag.NewFlagSet("covercheck", flag.ContinueOnError)
	flags.SetOutput(problems)
	profile := flags.String("profile", "", "cover `file`, as written by go test -coverprofile")
	folder := flags.String("C", ".", "`folder` of the module that the profile is about")
	flags.Usage = func() {
		fmt.Fprintln(problems, "usage: covercheck -profile FILE [-C FOLDER] PACKAGE=PERCENT ...")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return misuse
	}
	results, err := check(*profile, flags.Args())
	if err != nil {
		fmt.Fprintln(problems, "covercheck:", err)
		return misuse
	}
	printTable(out, results)
	code := reached
	for _, r := range results {
		if !r.reached() {
			code = below
			explain(problems, r, *folder)
		}
	}
	return code
}

// minimum is the coverage that a package must have.
type minimum struct {
	pkg     string
	percent float64
}

// check reads the profile and compares the named packages with their minimum.
func check(profile string, asked []string) ([]result, error) {
	if profile == "" || len(asked) == 0 {
		return nil, errors.New("need -profile FILE and at least one PACKAGE=PERCENT")
	}
	minima, err := parseMinima(asked)
	if err != nil {
		return nil, err
	}
	file, err := os.Open(profile)
	if err != nil {
		return nil, fmt.Errorf("open the profile: %w; write it with go test -coverprofile=%s", err, profile)
	}
	defer file.Close()
	packages, err := readProfile(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", profile, err)
	}
	var results []result
	for _, m := range minima {
		results = append(results, result{minimum: m, blocks: packages[m.pkg]})
	}
	return results, nil
}

func parseMinima(asked []string) ([]minimum, error) {
	var minima []minimum
	seen := map[string]bool{}
	for _, arg := range asked {
		pkg, text, _ := strings.Cut(arg, "=")
		percent, err := strconv.ParseFloat(text, 64)
		if pkg == "" || err != nil || !(percent >= 0 && percent <= 100) {
			return nil, fmt.Errorf("%q is not PACKAGE=PERCENT, such as micronode/b3=90", arg)
		}
		if seen[pkg] {
			return nil, fmt.Errorf("%s is named twice: keep one", pkg)
		}
		seen[pkg] = true
		minima = append(minima, minimum{pkg, percent})
	}
	return minima, nil
}
