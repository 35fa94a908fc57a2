package amnesia

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"micronode/fault"
)

// Attempt is one try to write.
type Attempt struct {
	Place   string
	Deed    string
	Cause   error // what the kernel said; nil if it let us
	Telling bool  // the folder would have taken it, so the refusal is the confinement's
}

// Proof is what came of trying to write.
type Proof struct{ Attempts []Attempt }

// deeds are the ways in which something can come to be in a folder. The first
// one also tells the confinement from a file system that takes nothing in,
// such as /sys, which gives another reason for this one.
var deeds = []struct {
	name string
	try  func(path string) error
}{
	{"make a folder", func(path string) error { return os.Mkdir(path, 0o700) }},
	{"create a file", func(path string) error {
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		return errors.Join(err, closed(file))
	}},
	{"create a file without a name", func(path string) error {
		fd, err := unix.Open(filepath.Dir(path), unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
		if err == nil {
			err = unix.Close(fd)
		}
		return err
	}},
	{"make a symbolic link", func(path string) error { return os.Symlink("nowhere", path) }},
	{"make a pipe", func(path string) error { return unix.Mkfifo(path, 0o600) }},
	{"make a socket", func(path string) error {
		listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
		if err == nil {
			err = listener.Close()
		}
		return err
	}},
}

func closed(file *os.File) error {
	if file == nil {
		return nil
	}
	return file.Close()
}

// Places is where a process usually could write: where it stands, the folder
// for temporary files, the home of its user, shared memory.
func Places() []string {
	here, _ := os.Getwd()
	home, _ := os.UserHomeDir()
	var places []string
	for _, place := range []string{here, os.TempDir(), home, "/var/tmp", "/dev/shm"} {
		info, err := os.Stat(place)
		if err == nil && info.IsDir() && !slices.Contains(places, place) {
			places = append(places, place)
		}
	}
	return places
}

// Prove tries to write in each of the places, or in those of Places if none
// is named, and removes at once what it was able to make.
func Prove(places ...string) Proof {
	if len(places) == 0 {
		places = Places()
	}
	var proof Proof
	for _, place := range places {
		takes := unix.Faccessat(unix.AT_FDCWD, place, unix.W_OK|unix.X_OK, unix.AT_EACCESS) == nil
		for i, deed := range deeds {
			path := filepath.Join(place, ".micronode-proof-"+strings.ToLower(rand.Text()))
			cause := deed.try(path)
			if cause == nil {
				_ = os.Remove(path) // some leave nothing behind
			}
			refused := errors.Is(cause, unix.EACCES)
			takes = takes && (refused || i > 0)
			proof.Attempts = append(proof.Attempts, Attempt{Place: place, Deed: deed.name, Cause: cause, Telling: takes && refused})
		}
	}
	return proof
}

// Err is nil if everything was refused, and at least once by the confinement
// and not just by the folder itself.
func (p Proof) Err() error {
	const op = "amnesia.prove"
	telling := false
	for _, attempt := range p.Attempts {
		if attempt.Cause == nil {
			err := fault.New(op, fault.NotReady, "the process can still %s in %s", attempt.Deed, attempt.Place)
			err.Next = "Set amnesia.enforce to on; `micronode doctor` says what is missing for it."
			return err
		}
		telling = telling || attempt.Telling
	}
	if !telling {
		err := fault.New(op, fault.NotReady, "nothing was proved: these folders take nothing from this user anyway")
		err.Next = "Name a folder that this user may write."
		return err
	}
	return nil
}

// String is a line for each attempt.
func (p Proof) String() string {
	var b strings.Builder
	for _, attempt := range p.Attempts {
		switch {
		case attempt.Cause == nil:
			fmt.Fprintf(&b, "could %s in %s\n", attempt.Deed, attempt.Place)
		case attempt.Telling:
			fmt.Fprintf(&b, "could not %s in %s: the kernel refused\n", attempt.Deed, attempt.Place)
		default:
			fmt.Fprintf(&b, "could not %s in %s: not possible anyway\n", attempt.Deed, attempt.Place)
		}
	}
	return b.String()
}
