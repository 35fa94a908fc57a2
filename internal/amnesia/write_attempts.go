package amnesia

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"micronode/fault"
	"micronode/internal/disk"
)

// Attempt is one attempt to write.
type Attempt struct {
	Folder     string
	Action     string
	Cause      error // what the kernel said; nil if the write succeeded
	Conclusive bool  // the folder itself is writable, so the refusal is the confinement's
}

// WriteAttempts is the result of TryWrites.
type WriteAttempts struct{ Attempts []Attempt }

// writeActions are the ways to create something in a folder. The first one also
// distinguishes the confinement from a file system that accepts nothing, such
// as /sys, which returns another error for this one.
var writeActions = []struct {
	name string
	try  func(path string) error
}{
	{"make a folder", func(path string) error { return os.Mkdir(path, 0o700) }},
	{"create a file", func(path string) error {
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		return errors.Join(err, closeFile(file))
	}},
	{"create a file without a name", createUnnamed},
	{"make a symbolic link", func(path string) error { return os.Symlink("nowhere", path) }},
	{"make a pipe", makePipe},
	{"make a socket", func(path string) error {
		listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
		if err == nil {
			err = listener.Close()
		}
		return err
	}},
}

func closeFile(file *os.File) error {
	if file == nil {
		return nil
	}
	return file.Close()
}

// DefaultFolders are the folders that a process usually can write: the working
// directory, the folder for temporary files, the home of its user, shared
// memory.
func DefaultFolders() []string {
	here, _ := os.Getwd()
	home, _ := os.UserHomeDir()
	var folders []string
	for _, folder := range []string{here, os.TempDir(), home, "/var/tmp", "/dev/shm"} {
		info, err := os.Stat(folder)
		if err == nil && info.IsDir() && !slices.Contains(folders, folder) {
			folders = append(folders, folder)
		}
	}
	return folders
}

// TryWrites tries to write in each of the folders, or in DefaultFolders if none
// is named, and removes at once what it was able to make.
func TryWrites(folders ...string) WriteAttempts {
	if len(folders) == 0 {
		folders = DefaultFolders()
	}
	var proof WriteAttempts
	for _, folder := range folders {
		writable := disk.MayWrite(folder) == nil
		for i, deed := range writeActions {
			path := filepath.Join(folder, ".micronode-proof-"+strings.ToLower(rand.Text()))
			cause := deed.try(path)
			if cause == nil {
				_ = os.Remove(path) // some leave nothing behind
			}
			refused := errors.Is(cause, fs.ErrPermission) && !errors.Is(cause, syscall.EPERM)
			writable = writable && (refused || i > 0)
			proof.Attempts = append(proof.Attempts, Attempt{Folder: folder, Action: deed.name, Cause: cause, Conclusive: writable && refused})
		}
	}
	return proof
}

// Err is nil if everything was refused, and at least once by the confinement
// and not just by the folder itself.
func (w WriteAttempts) Err() error {
	const op = "amnesia.prove"
	conclusive := false
	for _, attempt := range w.Attempts {
		if attempt.Cause == nil {
			return fault.New(op, fault.NotReady, "the process can still %s in %s", attempt.Action, attempt.Folder).
				Advise("Set amnesia.enforce to on; `micronode doctor` says what is missing for it.")
		}
		conclusive = conclusive || attempt.Conclusive
	}
	if !conclusive {
		return fault.New(op, fault.NotReady, "nothing was proved: this user cannot write to these folders in any case").
			Advise("Name a folder that this user may write.")
	}
	return nil
}

// String is a line for each attempt.
func (w WriteAttempts) String() string {
	var b strings.Builder
	for _, attempt := range w.Attempts {
		switch {
		case attempt.Cause == nil:
			fmt.Fprintf(&b, "could %s in %s\n", attempt.Action, attempt.Folder)
		case attempt.Conclusive:
			fmt.Fprintf(&b, "could not %s in %s: the kernel refused\n", attempt.Action, attempt.Folder)
		default:
			fmt.Fprintf(&b, "could not %s in %s: not possible anyway\n", attempt.Action, attempt.Folder)
		}
	}
	return b.String()
}
