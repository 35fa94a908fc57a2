package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// module is a module that has code in a program.
type module struct {
	path, version, sum string
	licence            string            // as SPDX names it
	texts              map[string]string // of its licence files, by name
}

// modulesOf reads from a program which modules are in it: what go.mod lists may be more.
func (r *release) modulesOf(p platform) ([]module, error) {
	info, err := buildinfo.ReadFile(r.program(p))
	if err != nil {
		return nil, err
	}
	root, err := r.command("go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	std := module{path: "std", version: strings.TrimPrefix(info.GoVersion, "go")}
	if err := std.readLicence(root); err != nil {
		return nil, err
	}
	modules := []module{std}
	folders, err := r.moduleFolders(p)
	if err != nil {
		return nil, err
	}
	for _, one := range info.Deps {
		m := module{path: one.Path, version: one.Version, sum: one.Sum}
		switch by := one.Replace; {
		case by != nil && strings.HasPrefix(by.Path, "."):
			m.version += "-changed" // a copy in this repository, which has no version of its own
		case by != nil:
			m = module{path: by.Path, version: by.Version, sum: by.Sum}
		}
		if err := m.readLicence(folders[one.Path]); err != nil {
			return nil, err
		}
		modules = append(modules, m)
	}
	slices.SortFunc(modules, func(a, b module) int { return cmp.Compare(a.path, b.path) })
	return modules, nil
}

// moduleFolders is where the sources of each module in a program are, those of its replacement if it has one. What go.mod lists besides is not
// asked for: nobody has fetched it who only built the program.
func (r *release) moduleFolders(p platform) (map[string]string, error) {
	text, err := r.commandFor(p, "go", "list", "-tags", tags, "-deps", "-f", "{{with .Module}}{{.Path}}\t{{.Dir}}{{end}}", "./cmd/"+name)
	if err != nil {
		return nil, err
	}
	folders := map[string]string{}
	for line := range strings.Lines(text) {
		path, folder, _ := strings.Cut(strings.TrimSpace(line), "\t")
		folders[path] = folder
	}
	return folders, nil
}

// readLicence wants at least one licence file. A module without one may not be given away.
func (m *module) readLicence(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("the sources of %s: %w", m.path, err)
	}
	m.texts = map[string]string{}
	for _, entry := range entries {
		title := strings.ToUpper(entry.Name())
		isLicence := strings.HasPrefix(title, "LICEN") || strings.HasPrefix(title, "COPYING") || strings.HasPrefix(title, "NOTICE") || strings.HasPrefix(title, "PATENTS") || strings.HasPrefix(title, "UNLICEN")
		if !isLicence || !entry.Type().IsRegular() || strings.HasSuffix(title, ".GO") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			return err
		}
		m.texts[entry.Name()] = string(text)
		if known := licenceOf(string(text)); !strings.HasPrefix(title, "NOTICE") && !strings.HasPrefix(title, "PATENTS") && known != "" && !strings.Contains(m.licence, known) {
			m.licence = strings.TrimPrefix(m.licence+" AND "+known, " AND ")
		}
	}
	if len(m.texts) == 0 {
		return fmt.Errorf("%s %s has no licence file, so it may not be given away", m.path, m.version)
	}
	m.licence = cmp.Or(m.licence, "NOASSERTION")
	return nil
}

var spdxLine = regexp.MustCompile(`SPDX-License-Identifier: ([\w.+ -]*[\w.+])`)

// licenceOf recognises the licences that Go modules have: by the line that says so, or by a phrase that no other has. Of an unknown one it says
// nothing.
func licenceOf(text string) string {
	if line := spdxLine.FindStringSubmatch(text); line != nil {
		return line[1]
	}
	text = strings.Join(strings.Fields(text), " ")
	has := func(phrase string) bool { return strings.Contains(text, phrase) }
	switch {
	case has("Apache License") && has("Version 2.0"):
		return "Apache-2.0"
	case has("Mozilla Public License") && has("2.0"):
		return "MPL-2.0"
	case has("GNU LESSER GENERAL PUBLIC LICENSE"):
		return "LGPL-3.0-only"
	case has("GNU GENERAL PUBLIC LICENSE"), has("GNU AFFERO"):
		return "GPL-3.0-only"
	case has("Permission is hereby granted, free of charge"), has("PERMISSION is hereby granted, free of charge"):
		return "MIT"
	case has("Permission to use, copy, modify, and/or distribute"), has("Permission to use, copy, modify, and distribute this software for any purpose"):
		return "ISC"
	case has("Redistribution and use in source and binary forms") && (has("Neither the name") || has("The name of") || has("names of its contributors")):
		return "BSD-3-Clause"
	case has("Redistribution and use in source and binary forms"):
		return "BSD-2-Clause"
	case has("CC0 1.0 Universal"):
		return "CC0-1.0"
	case has("This is free and unencumbered software"):
		return "Unlicense"
	}
	return ""
}

// licences are the texts that must go along with the program.
func (r *release) licences(modules []module) ([]byte, error) {
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s %s contains the following modules. Their licences:\n\n", name, r.version)
	for _, m := range modules {
		choice := strings.Contains(m.licence, " OR ")
		if strings.Contains(m.licence, "GPL") && !choice {
			return nil, fmt.Errorf("%s is under %s, which the licence of %s does not allow", m.path, m.licence, name)
		}
		fmt.Fprintf(&out, "  %s %s (%s)\n", m.path, m.version, m.licence)
	}
	for _, m := range modules {
		for _, title := range slices.Sorted(maps.Keys(m.texts)) {
			fmt.Fprintf(&out, "\n%s\n%s %s: %s\n\n%s\n", strings.Repeat("=", 80), m.path, m.version, title, strings.TrimSpace(m.texts[title]))
		}
	}
	return out.Bytes(), nil
}
