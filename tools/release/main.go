// Command release makes what people install: programs for each platform, archives, packages for Debian, RPM and Alpine, an OCI image, a list
// of what is inside (SPDX), the licences of it, checksums and a signature.
//
//	release [-C folder] [-out folder] [-version 0.1.0] [-key file] [GOOS/GOARCH...]
//
// Whoever runs it on the same commit gets the same bytes: it takes no time but that of the commit (or SOURCE_DATE_EPOCH), no path, no name of
// a user or machine, and no order but that of names. It needs Go, the sources and the module cache, and no daemon and no root.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	r := release{toolchain: toolchain, log: os.Stdout}
	flag.StringVar(&r.folder, "C", ".", "`folder` of the module")
	flag.StringVar(&r.out, "out", "dist", "`folder` for what is made; it must be new or empty")
	flag.StringVar(&r.version, "version", "", "`version`, such as 0.1.0; otherwise the file VERSION says it")
	flag.StringVar(&r.keyFile, "key", "", "`file` with the seed of the signing key, 64 hex digits; without it nothing is signed")
	flag.Parse()
	if err := r.run(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// run makes a release.
func (r *release) run(platforms []string) error {
	// What is made of what: the version, the time of the commit, the platforms.
	if err := r.plan(platforms); err != nil {
		return err
	}
	if err := r.prepareOut(); err != nil {
		return err
	}
	defer os.RemoveAll(r.work)

	// The program for this machine writes the man page and the completions, so it is built first, even if it is not released.
	if err := r.build(r.host); err != nil {
		return err
	}
	shared, err := r.sharedFiles()
	if err != nil {
		return err
	}

	// Each platform gets a program, an archive, a list of what is in the program, and on Linux the packages.
	for _, one := range r.platforms {
		if one != r.host {
			if err := r.build(one); err != nil {
				return err
			}
		}
		inside, err := r.modulesOf(one)
		if err != nil {
			return err
		}
		licences, err := r.licences(inside)
		if err != nil {
			return err
		}
		if err := r.writeSBOM(one, inside); err != nil {
			return err
		}
		files, err := r.filesOf(one, shared, licences)
		if err != nil {
			return err
		}
		if err := r.writeArchive(one, files); err != nil {
			return err
		}
		if one.system == "linux" {
			if err := r.writePackages(one, files); err != nil {
				return err
			}
		}
	}
	if err := r.writeImage(); err != nil {
		return err
	}

	// What was made, by its hashes; and who says so.
	if err := r.writeAbout(); err != nil {
		return err
	}
	if err := r.writeChecksums(); err != nil {
		return err
	}
	return r.sign()
}

// prepareOut makes the folder. It deletes nothing: a folder with something in it may be anybody's.
func (r *release) prepareOut() error {
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(r.out)
	if err == nil && len(entries) > 0 {
		err = errors.New(r.out + " is not empty: remove it, or choose another folder with -out")
	}
	if err != nil {
		return err
	}
	r.work, err = os.MkdirTemp("", "micronode-release-")
	return err
}

func (r *release) path(name string) string { return filepath.Join(r.out, name) }
