package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"
)

// mutant is one way to break the product, and the tests that must fail.
type mutant struct {
	path  string // of its description
	about string // what is broken, in a sentence

	file     string // that is changed, below the module's folder
	from, to []byte
	pkg      string // whose tests must fail
	run      string // which of them
	tags     string // build tags, if they need any
}

// find reads the descriptions in and below some folders or files, sorted by path.
func find(paths []string) ([]mutant, error) {
	var all []mutant
	for _, root := range paths {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".txtar" {
				return err
			}
			m, err := read(path)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			all = append(all, m)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b mutant) int { return strings.Compare(a.path, b.path) })
	return all, nil
}

func read(path string) (mutant, error) {
	archive, err := txtar.ParseFile(path)
	if err != nil {
		return mutant{}, err
	}
	m := mutant{path: path}
	if err := m.readHeader(string(archive.Comment)); err != nil {
		return m, err
	}
	for _, section := range archive.Files {
		text := bytes.TrimSuffix(section.Data, []byte("\n"))
		switch section.Name {
		case "from":
			m.from = text
		case "to":
			m.to = text
		default:
			return m, fmt.Errorf("a section %q; there are from and to", section.Name)
		}
	}
	if m.file == "" || m.pkg == "" || m.run == "" || len(m.from) == 0 {
		return m, errors.New("it needs the lines file:, package: and run:, and a section from")
	}
	return m, nil
}

// readHeader reads the lines `key: value`; the first line without a key describes what is broken.
func (m *mutant) readHeader(comment string) error {
	fields := map[string]*string{"file": &m.file, "package": &m.pkg, "run": &m.run, "tags": &m.tags}
	for line := range strings.Lines(comment) {
		line = strings.TrimSpace(line)
		key, value, _ := strings.Cut(line, ": ")
		if field := fields[key]; field != nil {
			*field = strings.TrimSpace(value)
		} else if m.about == "" {
			m.about = line
		}
	}
	if m.about == "" {
		return errors.New("the first line says what is broken")
	}
	return nil
}

// errStale is why a mutant cannot be tested: the code has changed.
var errStale = errors.New("stale")

// apply returns the mutated text of the file.
func (m *mutant) apply(folder string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(folder, m.file))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errStale, err)
	}
	if n := bytes.Count(text, m.from); n != 1 {
		return nil, fmt.Errorf("%w: its text occurs %d times in %s, and must occur once", errStale, n, m.file)
	}
	return bytes.Replace(text, m.from, m.to, 1), nil
}
