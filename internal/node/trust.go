package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"micronode/fault"
	"micronode/internal/disk"
)

// A folder is the node's memory: its keys, its names, what it has signed. Write
// access to it, or to the path that leads there, is control over the node. So
// before anything in it is read or written, it must be certain that only this
// user and root could have prepared it: the rules are those of ssh for its
// files.

// othersWrite are the write bits of group and others.
const othersWrite fs.FileMode = 0o022

// realPath finds out where a folder is, or will be, and that no other user can
// put another one there. Links are followed once, here; from then on the path
// has none.
func realPath(path string) (string, error) {
	existing, missing := path, ""
	for {
		if _, err := os.Lstat(existing); err == nil || existing == "/" {
			break
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", folderError(path, err)
		}
		existing, missing = filepath.Dir(existing), filepath.Join(filepath.Base(existing), missing)
	}
	real, err := filepath.EvalSymlinks(existing)
	if err != nil {
		return "", folderError(path, err)
	}
	for parent := real; ; parent = filepath.Dir(parent) {
		if parent != real || missing != "" {
			if err := checkParent(parent); err != nil {
				return "", err
			}
		}
		if parent == "/" {
			return filepath.Join(real, missing), nil
		}
	}
}

// checkParent rejects a parent folder in which other users could replace ours.
// Where all may write but only owners may rename, as in /tmp, they cannot.
func checkParent(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return folderError(path, err)
	}
	if err := checkOwner(path, info); err != nil {
		return err
	}
	if info.Mode()&fs.ModeSticky == 0 && info.Mode().Perm()&othersWrite != 0 {
		return untrustedError(path, "chmod go-w "+path, fmt.Sprintf("others may change what is in it (mode %04o)", info.Mode().Perm()))
	}
	return nil
}

// checkContents rejects a folder that other users can write to, or that has
// trusted files of other users.
func (f *Folder) checkContents() error {
	if err := checkTrusted(f.path, othersWrite); err != nil {
		return err
	}
	for _, name := range trustedFiles {
		mask := othersWrite
		if slices.Contains(secretFiles, name) {
			mask = 0o077
		}
		err := checkTrusted(f.join(name), mask)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = checkTree(f.join(name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// trustedFiles are the files that the node believes because they are in its
// folder. Objects and the answers of origins are verified when they are read.
var trustedFiles = []string{formatFile, lockFile, identityFile, rootFile, revocationsFile, objectsFolder, edgeFolder, registryFolder, namesFolder, seenFile, idempotencyFile, mailboxFolder, graphFile, searchFolder, certificatesFolder}

// secretFiles are those of them that no other user may read; shallowFolders are
// those of which only the top is checked.
var (
	secretFiles    = []string{identityFile, rootFile}
	shallowFolders = []string{objectsFolder, edgeFolder}
)

// checkTree checks everything in a folder.
func checkTree(path string) error {
	if slices.Contains(shallowFolders, filepath.Base(path)) {
		return nil
	}
	return filepath.WalkDir(path, func(at string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = checkTrusted(at, othersWrite)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was removed meanwhile
		}
		return err
	})
}

// checkTrusted rejects files of other users, files with permissions for others
// in mask, and links, which may lead anywhere.
func checkTrusted(path string, mask fs.FileMode) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil {
		return folderError(path, err)
	}
	if info.Mode().Type() == fs.ModeSymlink {
		return untrustedError(path, "mv what it points to into its place", "it is a link")
	}
	if err := checkOwner(path, info); err != nil {
		return err
	}
	if info.Mode().Perm()&mask != 0 {
		next := "chmod go-w " + path
		if mask&0o044 != 0 {
			next = "chmod 600 " + path
		}
		return untrustedError(path, next, fmt.Sprintf("others may read or write it (mode %04o)", info.Mode().Perm()))
	}
	return nil
}

// checkOwner rejects what belongs neither to this user nor to root.
func checkOwner(path string, info fs.FileInfo) error {
	if runtime.GOOS == "windows" {
		return nil // who may read and write is in an access list, which the folder of a user has from the start
	}
	owner, known := disk.Owner(info)
	if !known || owner != 0 && owner != uint32(os.Geteuid()) {
		return untrustedError(path, fmt.Sprintf("chown -R %d %s", os.Geteuid(), path), fmt.Sprintf("it belongs to user %d", owner))
	}
	return nil
}

func untrustedError(path, command, why string) error {
	return &fault.Error{Op: folderOp, Kind: fault.Forbidden, Detail: path + " cannot be trusted: " + why,
		Next: "Nothing was changed. If you trust its owner and its content, type: " + command + ". Otherwise choose another folder."}
}
