package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// dependencies are the packages of other modules, by system.
type dependencies struct {
	file    string // empty if nobody asks
	update  bool
	systems map[string]map[string]bool
}

func (d *dependencies) add(system, path string) {
	if d.systems[system] == nil {
		d.systems[system] = map[string]bool{}
	}
	d.systems[system][path] = true
}

// text is a line for each package, with the systems whose programs contain it unless all do.
func (d *dependencies) text() []byte {
	users := map[string][]string{}
	for _, system := range slices.Sorted(maps.Keys(d.systems)) {
		for path := range d.systems[system] {
			users[path] = append(users[path], system)
		}
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "# Packages of other modules in the program, and on which systems if not on all (%s).\n# `make generate` writes this list; see that you want what a change of it brings.\n",
		strings.Join(slices.Sorted(maps.Keys(d.systems)), ", "))
	for _, path := range slices.Sorted(maps.Keys(users)) {
		out.WriteString(path)
		if len(users[path]) < len(d.systems) {
			out.WriteString("  " + strings.Join(users[path], " "))
		}
		out.WriteByte('\n')
	}
	return out.Bytes()
}

// compare says what came in and what went, by the list.
func (d *dependencies) compare(folder string) error {
	if d.file == "" {
		return nil
	}
	file := filepath.Join(folder, d.file)
	if d.update {
		return os.WriteFile(file, d.text(), 0o644)
	}
	listed, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	was, is := linesOf(listed), linesOf(d.text())
	changed := false
	for _, line := range slices.Sorted(maps.Keys(is)) {
		if !was[line] {
			changed = true
			fmt.Println("+ " + line)
		}
	}
	for _, line := range slices.Sorted(maps.Keys(was)) {
		if !is[line] {
			changed = true
			fmt.Println("- " + line)
		}
	}
	if changed {
		return fmt.Errorf("%s is out of date: if you want what came in, type make generate", d.file)
	}
	return nil
}

func linesOf(text []byte) map[string]bool {
	lines := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		lines[strings.TrimSpace(line)] = true
	}
	return lines
}
