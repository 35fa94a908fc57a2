package pack

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"micronode/b3"
	"micronode/fault"
)

// Refusals name the file, never the folder it is in: their details are shown
// to strangers. The path is in the status and in the cause.

// errNotAFile is said of folders, pipes and devices that have the name of a
// pack.
var errNotAFile = errors.New("not a regular file")

// errMoved says that a file was written to while it was looked at. It is not a
// failure: the file is looked at again.
var errMoved = errors.New("the file is being written to")

// errTooSlow marks a file that could not be hashed in time.
var errTooSlow = errors.New("the disk is too slow")

// errClosed is what is left when the mounts are closed.
var errClosed = &fault.Error{Op: "pack.open", Kind: fault.Canceled, Detail: "the packs are unmounted: the node is going away"}

const opMount = "pack.mount"

func refuseName(file, reason string) error {
	err := fault.New(opMount, fault.Malformed, "%s cannot be mounted under its name: %s", printable(file), reason)
	err.Next = "Rename the file: UTF-8 without control characters, 128 bytes at most, ending in .pmtiles or .mbtiles."
	return err
}

func refuseKind(file string) error {
	err := fault.New(opMount, fault.Malformed, "%s is neither *.pmtiles nor *.mbtiles", printable(file))
	err.Next = "Name a PMTiles or MBTiles file with its extension, or a folder of them."
	return err
}

func refuseSecond(file string) error {
	err := fault.New(opMount, fault.Conflict, "another file %s is mounted already", file)
	err.Next = "Rename one of the two, or take its folder out of edge.packs."
	return err
}

func refuseTooMany(file string) error {
	err := fault.New(opMount, fault.QuotaExceeded, "%s is one too many: %d packs are mounted", file, mostPacks)
	err.Next = "Take packs that are not needed out of edge.packs, or serve them from another node."
	return err
}

func refuseFlood(folder string) error {
	err := fault.New(opMount, fault.QuotaExceeded, "the folder %s holds more than %d packs; the others are not looked at", folder, mostListed)
	err.Next = "Name the files in edge.packs one by one, or move some of them elsewhere."
	return err
}

func ambiguous(stem, file, other string) error {
	err := fault.New(opMount, fault.Conflict, "%q may mean %s or %s", stem, file, other)
	err.Next = "Ask for it by its file name, or rename one of the two."
	return err
}

// absent is said of what is configured and not there.
func absent(what string, cause error) error {
	return &fault.Error{
		Op: opMount, Kind: fault.NotFound, Detail: what + " is not there", Err: cause,
		Next: "Put it there, and it is mounted; or take it out of edge.packs.",
	}
}

// unreadable is said of what is there and cannot be read.
func unreadable(what string, cause error) error {
	err := &fault.Error{
		Op: opMount, Kind: fault.NotReady, Detail: what + " cannot be read", Err: cause,
		Next: "Look at the disk and at the limits of the process; it is tried again by itself.",
	}
	switch {
	case errors.Is(cause, fs.ErrPermission):
		err.Detail += ": permission denied"
		err.Next = "Let the user that the node runs as read it; it is then mounted by itself."
	case errors.Is(cause, errNotAFile):
		err.Detail += ": it is not a regular file"
		err.Next = "Put a regular file in its place, or take it out of edge.packs."
	}
	return err
}

// damaged is said of a file that is not an archive of its kind, or not a whole
// one.
func damaged(file string, of kind, cause error) error {
	next := ownNext(cause)
	if next == "" && of == pmtilesKind {
		next = "Put a whole archive in its place: copy it beside the old one, then rename it. `pmtiles verify FILE` says what is wrong with it."
	}
	if next == "" {
		next = "Put a whole archive in its place: copy it beside the old one, then rename it. `sqlite3 FILE \"PRAGMA integrity_check\"` says what is wrong with it."
	}
	detail := file + " is not a whole " + string(of) + " archive"
	if more := fault.DetailOf(cause); more != "" {
		detail = file + ": " + more
	}
	return &fault.Error{Op: opMount, Kind: fault.KindOf(cause), Detail: detail, Next: next, Err: cause}
}

// other is said of a file that is not what it should be.
func other(file string, want, got b3.Address) error {
	return &fault.Error{
		Op: opMount, Kind: fault.IntegrityFail, Detail: file + " is not the file that edge.expect names",
		Next: "Fetch the file again. If it is a new version that you trust, write its own address into edge.expect.",
		Err:  &b3.Mismatch{Want: want, Got: got},
	}
}

// tooSlow is said of a file that could not be hashed in time.
func tooSlow(file string, limit time.Duration) error {
	err := fault.New(opMount, fault.Timeout, "%s could not be hashed within %s", file, limit)
	err.Err = errTooSlow
	err.Next = "Look at how fast the disk is. `touch` the file to have it tried again."
	return err
}

// settling is said of a file that is not mounted yet because it may not be
// whole yet.
func settling(file string) error {
	return &fault.Error{
		Op: opMount, Kind: fault.NotReady, Detail: file + " was written to a moment ago and is mounted when it is left alone",
		Next: "Wait until it is copied.", RetryAfter: time.Second,
	}
}

// verifying is said of a file that is being hashed.
func verifying(file string) error {
	return &fault.Error{
		Op: opMount, Kind: fault.NotReady, Detail: file + " is being verified",
		Next: "Wait until it is read to its end.", RetryAfter: time.Second,
	}
}

// blind is said when changes are noticed by the periodic look only.
func blind(cause error, every time.Duration) *fault.Error {
	return &fault.Error{
		Op: "pack.watch", Kind: fault.Degraded, Err: cause,
		Detail: fmt.Sprintf("changes of packs are noticed within %s instead of at once", every),
		Next:   "If there are too many watches, raise fs.inotify.max_user_instances and fs.inotify.max_user_watches.",
	}
}

// notFound is the answer for a name that nobody mounted.
func notFound(name string) error {
	err := fault.New("pack.open", fault.NotFound, "there is no pack %s", printable(name))
	err.Next = "GET /edge/packs lists what is mounted."
	return err
}

// notReady is the answer for a pack that is known and cannot be served.
func notReady(reason error) error {
	kind := fault.NotReady
	if fault.KindOf(reason) == fault.NotFound || fault.KindOf(reason) == fault.Conflict {
		kind = fault.KindOf(reason)
	}
	return &fault.Error{
		Op: "pack.open", Kind: kind, Detail: fault.DetailOf(reason),
		Next: fault.NextOf(reason), RetryAfter: fault.RetryAfterOf(reason), Err: reason,
	}
}

// ownNext is the next step of an error if it has one of its own.
func ownNext(err error) string {
	if next := fault.NextOf(err); next != fault.KindOf(err).Next() {
		return next
	}
	return ""
}

// printable is a name as it may be shown anywhere.
func printable(name string) string {
	if len(name) > longestName {
		name = name[:longestName] + "…"
	}
	quoted := fmt.Sprintf("%q", name)
	if quoted == `"`+name+`"` {
		return name
	}
	return quoted
}
