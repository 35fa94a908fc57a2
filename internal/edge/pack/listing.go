package pack

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"micronode/internal/disk"
)

// foundFile is a file that is, or should be, a pack.
type foundFile struct {
	path       string // absolute
	file       string // the last element of the path
	configured string // the configured path through which it was found
	state      fileState
	err        error // why it has no state; fs.ErrNotExist if there is no file
}

// listing is what the configured paths contain at one moment.
type listing struct {
	files        []foundFile
	folderErrors map[string]error // configured folders that cannot be read, or only in part
	folders      []string         // the folders to watch
}

// scanPaths scans every configured path once.
func scanPaths(paths []string) listing {
	l := listing{folderErrors: map[string]error{}}
	for _, path := range paths {
		l.addPath(path)
	}
	slices.Sort(l.folders)
	l.folders = slices.Compact(l.folders)
	return l
}

// addPath adds what one configured path contains.
func (l *listing) addPath(path string) {
	stamp, err := disk.StampOfPath(path)
	isFolder := err == nil && stamp.Type == fs.ModeDir
	if isFolder || err != nil && kindOf(path) == noKind {
		l.addFolder(path)
		return
	}
	l.folders = append(l.folders, filepath.Dir(path))
	l.add(path, path)
}

// addFolder adds the packs of a folder.
func (l *listing) addFolder(folder string) {
	l.folders = append(l.folders, folder)
	names, err := namesIn(folder)
	if err != nil {
		l.folderErrors[folder] = err
	}
	for _, name := range names {
		l.add(filepath.Join(folder, name), folder)
	}
}

// add stats one file. A file that vanished after its folder was listed is
// skipped.
func (l *listing) add(path, configured string) {
	file := filepath.Base(path)
	seen, err := statFile(path, kindOf(file))
	if errors.Is(err, fs.ErrNotExist) && path != configured {
		return
	}
	l.files = append(l.files, foundFile{path: path, file: file, configured: configured, state: seen, err: err})
	if real, err := filepath.EvalSymlinks(path); err == nil {
		l.folders = append(l.folders, filepath.Dir(real)) // where a write in place is notified
	}
}

// namesIn lists the packs of a folder, sorted. It reads in batches and keeps
// the names of packs only, so that a huge folder does not become a huge list.
func namesIn(folder string) ([]string, error) {
	dir, err := os.Open(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, absent("the folder "+filepath.Base(folder), err)
	}
	if err != nil {
		return nil, unreadable("the folder "+filepath.Base(folder), err)
	}
	defer func() { _ = dir.Close() }() // nothing was written
	var names []string
	for {
		some, err := dir.Readdirnames(1024)
		for _, name := range some {
			if kindOf(name) != noKind && !strings.HasPrefix(name, ".") {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		switch {
		case len(names) > maxListed:
			return names[:maxListed], refuseTooManyListed(filepath.Base(folder))
		case err == io.EOF:
			return names, nil
		case err != nil:
			return names, unreadable("the folder "+filepath.Base(folder), err)
		}
	}
}

// absolute cleans configured paths and removes duplicates.
func absolute(paths []string) []string {
	var clean []string
	for _, path := range paths {
		if full, err := filepath.Abs(path); err == nil {
			path = full
		}
		if !slices.Contains(clean, path) {
			clean = append(clean, path)
		}
	}
	return clean
}
