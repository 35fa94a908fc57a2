package pack

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// sighting is a file that is, or should be, a pack.
type sighting struct {
	path   string // absolute
	file   string // the last element of the path
	origin string // the configured path through which it was found
	look   look
	err    error // why there is nothing to look at; fs.ErrNotExist if there is no file
}

// listing is what the configured paths lead to at one moment.
type listing struct {
	sightings []sighting
	troubled  map[string]error // configured folders that cannot be read, or not wholly
	folders   []string         // what has to be watched to notice changes
}

// list looks at every configured path once.
func list(paths []string) listing {
	l := listing{troubled: map[string]error{}}
	for _, path := range paths {
		l.follow(path)
	}
	slices.Sort(l.folders)
	l.folders = slices.Compact(l.folders)
	return l
}

// follow adds what one configured path leads to.
func (l *listing) follow(path string) {
	var st unix.Stat_t
	err := stat(path, &st)
	isFolder := err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
	if isFolder || err != nil && kindOf(path) == noKind {
		l.followFolder(path)
		return
	}
	l.folders = append(l.folders, filepath.Dir(path))
	l.add(path, path)
}

// followFolder adds the packs of a folder.
func (l *listing) followFolder(folder string) {
	l.folders = append(l.folders, folder)
	names, err := namesIn(folder)
	if err != nil {
		l.troubled[folder] = err
	}
	for _, name := range names {
		l.add(filepath.Join(folder, name), folder)
	}
}

// add looks at one file. One that vanished between the listing of its folder
// and this look is as good as never listed.
func (l *listing) add(path, origin string) {
	file := filepath.Base(path)
	seen, err := lookAt(path, kindOf(file))
	if errors.Is(err, fs.ErrNotExist) && path != origin {
		return
	}
	l.sightings = append(l.sightings, sighting{path: path, file: file, origin: origin, look: seen, err: err})
	if real, err := filepath.EvalSymlinks(path); err == nil {
		l.folders = append(l.folders, filepath.Dir(real)) // where a write in place is notified
	}
}

// namesIn lists the packs of a folder, sorted. It reads in pieces and keeps the
// names of packs only, so that a huge folder does not become a huge list.
func namesIn(folder string) ([]string, error) {
	dir, err := os.Open(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, absent("the folder "+filepath.Base(folder), err)
	}
	if err != nil {
		return nil, unreadable("the folder "+filepath.Base(folder), err)
	}
	defer func() { _ = dir.Close() }() // it was only read
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
		case len(names) > mostListed:
			return names[:mostListed], refuseFlood(filepath.Base(folder))
		case err == io.EOF:
			return names, nil
		case err != nil:
			return names, unreadable("the folder "+filepath.Base(folder), err)
		}
	}
}

// absolute cleans configured paths and drops repetitions.
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
