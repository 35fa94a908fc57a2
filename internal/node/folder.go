package node

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"micronode/fault"
	"micronode/internal/capability"
)

// Folder is the one folder that a node with --persist writes to. It is held by
// one process at a time, and it says in a file of its own which version of the
// format it has, so that neither an older nor a newer program reads it wrongly.
type Folder struct {
	// set at construction
	path   string
	format Format
	lock   *os.File
}

// Format is the file FORMAT of a folder: what wrote it, and for whom.
type Format struct {
	Version  int      `json:"format"`
	Node     string   `json:"node"` // the peer ID; empty until the node has one
	Features []string `json:"features"`
}

// formatVersion is the format that this program reads and writes.
const formatVersion = 1

// features are the parts that keep something in the folder.
var features = []string{"edge", "store"}

// The names in a folder.
const (
	formatFile   = "FORMAT"
	lockFile     = "LOCK"
	identityFile = "identity.key"
	rootFile     = "auth.root"
	objectFolder = "objects"
	edgeFolder   = "edge"

	registryFolder = "registry"
	namesFolder    = "names"
	seenFile       = "seen.log"  // which records of others' names were seen
	deedsFile      = "deeds.log" // which requests of an operator were carried out, by their keys
	mailboxFolder  = "mailbox"
	graphFile      = "graph.log"
	searchFolder   = "search"
)

const folderOp = "node.folder"

// OpenFolder takes a folder for this process, and makes it if it is not there.
// Whoever opens it must close it.
func OpenFolder(path string) (*Folder, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fault.Wrap(folderOp, err)
	}
	if err := os.MkdirAll(absolute, 0o700); err != nil {
		return nil, unusable(absolute, err)
	}
	f := &Folder{path: absolute}
	if err := f.take(); err != nil {
		return nil, err
	}
	if err := f.readFormat(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// take locks the folder. The lock is the kernel's and ends with the process,
// so a node that was killed leaves nothing to clean up.
func (f *Folder) take() error {
	lock, err := os.OpenFile(f.in(lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return unusable(f.path, err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		return &fault.Error{Op: folderOp, Kind: fault.Conflict, Detail: f.path + " is in use by another process",
			Next: "Stop the node that runs on it (`micronode status` shows it), or choose another folder."}
	}
	f.lock = lock
	return nil
}

// readFormat reads what the folder is, or writes it into an empty one.
func (f *Folder) readFormat() error {
	text, err := os.ReadFile(f.in(formatFile))
	if errors.Is(err, fs.ErrNotExist) {
		return f.begin()
	}
	if err != nil {
		return unusable(f.path, err)
	}
	if err := json.Unmarshal(text, &f.format); err != nil {
		return &fault.Error{Op: folderOp, Kind: fault.Malformed, Detail: f.in(formatFile) + " is not what a node writes", Err: err,
			Next: "Check that this is the right folder. If it is, restore the file from a backup."}
	}
	return f.checkVersion()
}

func (f *Folder) checkVersion() error {
	switch have := f.format.Version; {
	case have > formatVersion:
		return &fault.Error{Op: folderOp, Kind: fault.RejectPolicy,
			Detail: fmt.Sprintf("%s has format %d, and this program knows none after %d", f.path, have, formatVersion),
			Next:   "Run the newer version of micronode that wrote it, or choose another folder."}
	case have < formatVersion:
		return &fault.Error{Op: folderOp, Kind: fault.RejectPolicy,
			Detail: fmt.Sprintf("%s has format %d, and this program writes %d", f.path, have, formatVersion),
			Next:   "Make a backup, then run `micronode migrate " + f.path + "`."}
	}
	return nil
}

// begin makes an empty folder the node's. A folder with other things in it is
// left alone: somebody may have mistyped.
func (f *Folder) begin() error {
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return unusable(f.path, err)
	}
	if strange := slices.IndexFunc(entries, func(e fs.DirEntry) bool { return e.Name() != lockFile }); strange >= 0 {
		return &fault.Error{Op: folderOp, Kind: fault.Conflict,
			Detail: fmt.Sprintf("%s is not a node's folder, and not empty: it has %s", f.path, entries[strange].Name()),
			Next:   "Name a folder that is empty or new."}
	}
	f.format = Format{Version: formatVersion, Features: features}
	return f.writeFormat()
}

func (f *Folder) writeFormat() error {
	text, err := json.MarshalIndent(f.format, "", "  ")
	if err != nil {
		return fault.Wrap(folderOp, err)
	}
	return f.write(formatFile, append(text, '\n'))
}

// belongTo notes whose folder it is. A folder of another node is refused: what
// it holds was promised under another name.
func (f *Folder) belongTo(peerID string) error {
	if f.format.Node == peerID {
		return nil
	}
	if f.format.Node != "" {
		return &fault.Error{Op: folderOp, Kind: fault.Conflict,
			Detail: fmt.Sprintf("%s belongs to the node %s, and this one is %s", f.path, f.format.Node, peerID),
			Next:   "Run it with the identity that it belongs to, or choose another folder."}
	}
	f.format.Node = peerID
	return f.writeFormat()
}

// identity is the node's key in the folder. It is made the first time.
func (f *Folder) identity() (*Identity, error) {
	spec := "file:" + f.in(identityFile)
	const restore = "Put it back from a backup, or choose another folder."
	if _, err := os.Stat(f.in(identityFile)); err == nil {
		known, err := LoadIdentity(spec)
		if own, ok := errors.AsType[*fault.Error](err); ok {
			own.Next = restore // another key would be another node
		}
		return known, err
	}
	if f.format.Node != "" {
		return nil, &fault.Error{Op: folderOp, Kind: fault.Conflict, Next: restore,
			Detail: fmt.Sprintf("%s is gone: it is the key of the node %s, whose folder this is", f.in(identityFile), f.format.Node)}
	}
	drawn, err := NewIdentity()
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if err := drawn.WritePEM(&text); err != nil {
		return nil, err
	}
	if err := f.write(identityFile, text.Bytes()); err != nil {
		return nil, err
	}
	return LoadIdentity(spec)
}

// root is the secret under which capabilities are minted. It is kept, so that
// tokens outlive a restart, and drawn the first time.
func (f *Folder) root(alloc capability.Alloc) (*capability.Root, error) {
	path := f.in(rootFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		var secret [32]byte
		_, _ = rand.Read(secret[:]) // it never fails
		if err := f.write(rootFile, append(hex.AppendEncode(nil, secret[:]), '\n')); err != nil {
			return nil, err
		}
	}
	root, err := capability.RootFrom("file:"+path, alloc)
	if err != nil {
		return nil, &fault.Error{Op: folderOp, Kind: fault.KindOf(err), Detail: path + " is not what a node writes", Err: err,
			Next: "Put it back from a backup. Or remove it, and another is made; tokens that were minted under it are then worth nothing."}
	}
	return root, nil
}

// write replaces a small file, whole or not at all, and returns when it is on
// the disk.
func (f *Folder) write(name string, text []byte) error {
	path := f.in(name)
	folder := filepath.Dir(path)
	file, err := os.CreateTemp(folder, "."+filepath.Base(path)+".*") // of mode 0600
	if err != nil {
		return unusable(folder, err)
	}
	defer func() { _ = os.Remove(file.Name()) }()
	_, err = file.Write(text)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err == nil {
		err = syncFolder(folder)
	}
	if err != nil {
		return unusable(folder, err)
	}
	return nil
}

func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

func (f *Folder) in(names ...string) string {
	return filepath.Join(append([]string{f.path}, names...)...)
}

// Path is where the folder is.
func (f *Folder) Path() string { return f.path }

// Close lets another process have the folder.
func (f *Folder) Close() error { return f.lock.Close() }

// unusable says why a folder cannot be written to.
func unusable(path string, err error) error {
	failed := &fault.Error{Op: folderOp, Kind: fault.Internal, Detail: path + " cannot be used", Err: err, Next: "Look at the folder and the disk, or choose another folder."}
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		failed.Kind, failed.Detail = fault.StoreFull, "the disk of "+path+" is full"
		failed.Next = "Make room on it, then try again."
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		failed.Kind, failed.Next = fault.Forbidden, "Choose a folder that you may write to."
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, fs.ErrExist):
		failed.Kind, failed.Next = fault.Malformed, "Name a folder: there is a file in its place."
	}
	return failed
}

// Migrated is what became of a folder that was to be migrated.
type Migrated struct {
	Folder string `json:"folder"`
	From   int    `json:"from"`
	To     int    `json:"to"`
}

// Migrate brings a folder to the format of this program. There is one format
// so far, so it only checks that the folder has it.
func Migrate(path string) (Migrated, error) {
	if _, err := os.Stat(filepath.Join(path, formatFile)); err != nil {
		return Migrated{}, &fault.Error{Op: "migrate", Kind: fault.NotFound, Detail: path + " is not a node's folder: it has no file " + formatFile,
			Next: "Name the folder that was given to `micronode run --persist`."}
	}
	folder, err := OpenFolder(path)
	if older, ok := errors.AsType[*fault.Error](err); ok && older.Kind == fault.RejectPolicy {
		older.Next = "Run the version of micronode that wrote it, or choose another folder: nothing was changed." // there is no way from another format yet
	}
	if err != nil {
		return Migrated{}, err
	}
	defer folder.Close()
	return Migrated{Folder: folder.path, From: folder.format.Version, To: formatVersion}, nil
}
