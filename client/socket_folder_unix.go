//go:build unix

package client

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// onlyUserCanListen reports whether a path is one that nobody but a user and
// root can have put a socket at: every folder down to it from the top belongs
// to one of the two, and only its owner can write there. The socket itself must
// be open to a group, by which its node says that it serves others. A path with
// a link in it is not trusted: a link has an owner of its own.
func onlyUserCanListen(top, path string, uid uint32) bool {
	path, err := filepath.Abs(path)
	if err != nil || filepath.Base(path) == "/" {
		return false
	}
	file, owner, err := ownedBy(path)
	const group = 0o060
	if err != nil || file.Type() != fs.ModeSocket || owner != uid || file.Perm()&group != group {
		return false
	}
	for folder := filepath.Dir(path); ; folder = filepath.Dir(folder) {
		const others = 0o022
		mode, owner, err := ownedBy(folder)
		switch {
		case err != nil || !mode.IsDir() || owner != 0 && owner != uid || mode.Perm()&others != 0:
			return false
		case folder == top:
			return true
		case folder == "/":
			return false // not below the top
		}
	}
}

// ownedBy is what a path itself is, and whose.
func ownedBy(path string) (fs.FileMode, uint32, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, 0, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, fs.ErrInvalid // unreachable on Unix
	}
	return info.Mode(), stat.Uid, nil
}

// ownerOfFolder is whose folder it is, if it is there.
func ownerOfFolder(folder string) (uint32, bool) {
	mode, owner, err := ownedBy(folder)
	return owner, err == nil && mode.IsDir()
}
