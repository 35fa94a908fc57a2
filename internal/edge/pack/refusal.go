package pack

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"micronode/b3"
	"micronode/fault"
)

// Refusals name the file, never its folder: their details are shown to clients.
// The path is in the status and in the cause.

// errNotAFile is for folders, pipes and devices that have the name of a pack.
var errNotAFile = errors.New("not a regular file")

// errChanged says that a file was written to while it was checked. It is not a
// failure: the file is checked again.
var errChanged = errors.New("the file is being written to")

// errTooSlow marks a file that could not be hashed in time.
var errTooSlow = errors.New("the disk is too slow")

// errClosed is the error of Open after Close.
var errClosed = &fault.Error{Op: "pack.open", Kind: fault.Canceled, Detail: "the packs are unmounted: the node is shutting down"}

const opMount = "pack.mount"

func refuseName(file, reason string) error {
	return fault.New(opMount, fault.Malformed, "%s cannot be mounted under its name: %s", printable(file), reason).
		Advise("Rename the file: UTF-8 without control characters, 128 bytes at most, ending in .pmtiles or .mbtiles.")
}

func refuseKind(file string) error {
	return fault.New(opMount, fault.Malformed, "%s is neither *.pmtiles nor *.mbtiles", printable(file)).
		Advise("Name a PMTiles or MBTiles file with its extension, or a folder of them.")
}

func refuseDuplicate(file string) error {
	return fault.New(opMount, fault.Conflict, "another file %s is mounted already", file).
		Advise("Rename one of the two, or remove its folder from edge.packs.")
}

func refuseTooMany(file string) error {
	return fault.New(opMount, fault.QuotaExceeded, "%s exceeds the maximum of %d mounted packs", file, maxPacks).
		Advise("Remove packs from edge.packs, or serve them from another node.")
}

func refuseTooManyListed(folder string) error {
	return fault.New(opMount, fault.QuotaExceeded, "the folder %s holds more than %d packs; the others are ignored", folder, maxListed).
		Advise("Name the files in edge.packs one by one, or move some of them elsewhere.")
}

func ambiguous(stem, file, other string) error {
	return fault.New(opMount, fault.Conflict, "%q may mean %s or %s", stem, file, other).
		Advise("Ask for it by its file name, or rename one of the two.")
}

// absent is the fault of a configured path that does not exist.
func absent(what string, cause error) error {
	return &fault.Error{
		Op: opMount, Kind: fault.NotFound, Detail: what + " is not there", Err: cause,
		Next: "Create it, and it is mounted; or remove it from edge.packs.",
	}
}

// unreadable is the fault of a file or folder that cannot be read.
func unreadable(what string, cause error) error {
	err := &fault.Error{
		Op: opMount, Kind: fault.NotReady, Detail: what + " cannot be read", Err: cause,
		Next: "Check the disk and the limits of the process; the node retries by itself.",
	}
	switch {
	case errors.Is(cause, fs.ErrPermission):
		err.Detail += ": permission denied"
		err.Next = "Give the user of the node read permission; it is then mounted by itself."
	case errors.Is(cause, errNotAFile):
		err.Detail += ": it is not a regular file"
		err.Next = "Replace it by a regular file, or remove it from edge.packs."
	}
	return err
}

// damaged is the fault of a file that is not a valid or complete archive of its
// kind.
func damaged(file string, of kind, cause error) error {
	next := ownNext(cause)
	if next == "" && of == pmtilesKind {
		next = "Replace it by a whole archive: copy it beside the old one, then rename it. `pmtiles verify FILE` shows its errors."
	}
	if next == "" {
		next = "Replace it by a whole archive: copy it beside the old one, then rename it. `sqlite3 FILE \"PRAGMA integrity_check\"` shows its errors."
	}
	detail := file + " is not a whole " + string(of) + " archive"
	if more := fault.DetailOf(cause); more != "" {
		detail = file + ": " + more
	}
	return &fault.Error{Op: opMount, Kind: fault.KindOf(cause), Detail: detail, Next: next, Err: cause}
}

// wrongHash is the fault of a file with another address than expected.
func wrongHash(file string, want, got b3.Address) error {
	return &fault.Error{
		Op: opMount, Kind: fault.IntegrityFail, Detail: file + " does not have the address in edge.expect",
		Next: "Fetch the file again. If it is a new version that you trust, write its own address into edge.expect.",
		Err:  &b3.Mismatch{Want: want, Got: got},
	}
}

// tooSlow is the fault of a file that could not be hashed in time.
func tooSlow(file string, limit time.Duration) error {
	return fault.New(opMount, fault.Timeout, "%s could not be hashed within %s", file, limit).
		Advise("Check the speed of the disk. `touch` the file to retry.").Because(errTooSlow)
}

// writtenFault is the fault of a file that is not mounted yet because it may be
// incomplete.
func writtenFault(file string) error {
	return &fault.Error{
		Op: opMount, Kind: fault.NotReady, Detail: file + " was just written to; it is mounted when the writes stop",
		Next: "Wait until it is copied.", RetryAfter: time.Second,
	}
}

// verifying is the fault of a file that is being hashed.
func verifying(file string) error {
	return &fault.Error{
		Op: opMount, Kind: fault.NotReady, Detail: file + " is being verified",
		Next: "Wait until the verification ends.", RetryAfter: time.Second,
	}
}

// watchFault says that only the periodic scan notices changes.
func watchFault(cause error, every time.Duration) *fault.Error {
	return &fault.Error{
		Op: "pack.watch", Kind: fault.Degraded, Err: cause,
		Detail: fmt.Sprintf("changes of packs are noticed within %s instead of at once", every),
		Next:   "If there are too many watches, raise fs.inotify.max_user_instances and fs.inotify.max_user_watches.",
	}
}

// notFound is the fault for a name that is not mounted.
func notFound(name string) error {
	return fault.New("pack.open", fault.NotFound, "there is no pack %s", printable(name)).
		Advise("GET /edge/packs lists the mounted packs.")
}

// notReady is the fault for a known pack that cannot be served.
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

// printable is a name that is safe to show anywhere.
func printable(name string) string {
	if len(name) > maxName {
		name = name[:maxName] + "…"
	}
	quoted := fmt.Sprintf("%q", name)
	if quoted == `"`+name+`"` {
		return name
	}
	return quoted
}
