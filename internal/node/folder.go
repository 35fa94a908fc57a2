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
	"runtime"
	"slices"
	"strings"
	"syscall"

	"micronode/fault"
	"micronode/internal/capability"
	"micronode/internal/disk"
)

// Folder is the one folder that a node with --persist writes to. One process at
// a time holds it, and a file in it has the version of its format, so that
// neither an older nor a newer program misreads it.
type Folder struct {
	// set at construction
	path   string
	format Format
	lock   *os.File
}

// Format is the file FORMAT of a folder: the version, the node and the features
// of its content.
type Format struct {
	Version  int      `json:"format"`
	Node     string   `json:"node"` // the peer ID; empty until the node has one
	Features []string `json:"features"`

	// Revocations is the ID of the root whose revocations are in the folder.
	// With the same root, a list that is missing was lost.
	Revocations string `json:"revocations,omitempty"`
}

// FolderFormat is the format that this program reads and writes. It is raised
// when anything in a folder changes so that an older program would misread it.
const FolderFormat = 1

// features are the services that keep something in the folder, and what came to
// them later. A program refuses a folder with one that it does not know: one
// from before names had objects of their own would not find those.
var features = []string{"edge", "graph", "index", "mailbox", "named objects", "registry", "search", "store"}

// The names in a folder.
const (
	formatFile      = "FORMAT"
	lockFile        = "LOCK"
	identityFile    = "identity.key"
	rootFile        = "auth.root"
	revocationsFile = "revoked.json" // tokens that are revoked
	peersFile       = "peers.json"   // peers that were added, joined or invited; if it is missing, none was
	objectsFolder   = "objects"
	edgeFolder      = "edge"

	registryFolder  = "registry"
	namesFolder     = "names"
	seenFile        = "seen.log"  // which records of other nodes' names were seen
	idempotencyFile = "deeds.log" // the idempotency keys of completed requests
	mailboxFolder   = "mailbox"
	graphFile       = "graph.log"
	searchFolder    = "search"
)

const folderOp = "node.folder"

// OpenFolder locks a folder for this process, and creates it if it does not
// exist. It rejects a folder that another user could have prepared, and one
// that is not a node's; it leaves nothing behind in either. The caller must
// close it.
func OpenFolder(path string) (*Folder, error) {
	if runtime.GOOS == "windows" {
		return nil, &fault.Error{Op: folderOp, Kind: fault.Malformed, Detail: "on Windows a node keeps everything in RAM",
			Next: "Start it without --persist. Nothing of what keeps data across a crash was tried on Windows."}
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fault.Wrap(folderOp, err)
	}
	if absolute, err = realPath(absolute); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(absolute, 0o700); err != nil {
		return nil, folderError(absolute, err)
	}
	f := &Folder{path: absolute}
	for _, step := range []func() error{f.checkContents, f.readFormat, f.checkEmpty, f.acquireLock, f.readFormat, f.initialise} { // another process may have initialised it in between
		if err := step(); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

// acquireLock locks the folder. The lock is the kernel's and ends with the
// process, so a killed node leaves nothing to clean up.
func (f *Folder) acquireLock() error {
	lock, err := os.OpenFile(f.join(lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return folderError(f.path, err)
	}
	if err := disk.Lock(lock); err != nil {
		_ = lock.Close()
		return &fault.Error{Op: folderOp, Kind: fault.Conflict, Detail: f.path + " is in use by another process",
			Next: "Stop the node that runs on it (`micronode status` shows it), or choose another folder."}
	}
	f.lock = lock
	return nil
}

// readFormat reads the format of the folder. One without a format file is new.
func (f *Folder) readFormat() error {
	text, err := os.ReadFile(f.join(formatFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return folderError(f.path, err)
	}
	if err := json.Unmarshal(text, &f.format); err != nil {
		return &fault.Error{Op: folderOp, Kind: fault.Malformed, Detail: f.join(formatFile) + " is not in the format of a node", Err: err,
			Next: "Check that this is the right folder. If it is, restore the file from a backup."}
	}
	return f.checkVersion()
}

func (f *Folder) checkVersion() error {
	switch have := f.format.Version; {
	case have > FolderFormat:
		return &fault.Error{Op: folderOp, Kind: fault.RejectPolicy,
			Detail: fmt.Sprintf("%s has format %d; this program supports formats up to %d", f.path, have, FolderFormat),
			Next:   "Run the newer version of micronode that wrote it, or choose another folder."}
	case have < FolderFormat:
		return &fault.Error{Op: folderOp, Kind: fault.RejectPolicy,
			Detail: fmt.Sprintf("%s has format %d; this program needs format %d", f.path, have, FolderFormat),
			Next:   "Make a backup, then run `micronode migrate " + f.path + "`."}
	}
	for _, one := range f.format.Features {
		if !slices.Contains(features, one) {
			return &fault.Error{Op: folderOp, Kind: fault.RejectPolicy, Detail: fmt.Sprintf("%s has something of %q, which this program does not know", f.path, one),
				Next: "Run the newer version of micronode that wrote it, or choose another folder. Nothing was changed."}
		}
	}
	return nil
}

// isNew reports whether the folder has no format yet.
func (f *Folder) isNew() bool { return f.format.Version == 0 }

// checkEmpty rejects a folder without a format that has files in it: the path
// may be mistyped.
func (f *Folder) checkEmpty() error {
	if !f.isNew() {
		return nil
	}
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return folderError(f.path, err)
	}
	if foreign := slices.IndexFunc(entries, func(e fs.DirEntry) bool {
		return e.Name() != lockFile && !strings.HasPrefix(e.Name(), "."+formatFile+".") // what another process writes that initialises it now
	}); foreign >= 0 {
		return &fault.Error{Op: folderOp, Kind: fault.Conflict,
			Detail: fmt.Sprintf("%s is not the folder of a node, and it is not empty: it has %s", f.path, entries[foreign].Name()),
			Next:   "Name a folder that is empty or new."}
	}
	return nil
}

// initialise makes an empty folder the node's. In one of an older program it
// adds what that one does not know, so that it notices.
func (f *Folder) initialise() error {
	if len(f.format.Features) == len(features) { // all of them, because others are refused
		return nil
	}
	f.format.Version, f.format.Features = FolderFormat, features
	return f.writeFormat()
}

func (f *Folder) writeFormat() error {
	text, err := json.MarshalIndent(f.format, "", "  ")
	if err != nil {
		return fault.Wrap(folderOp, err)
	}
	return f.write(formatFile, append(text, '\n'))
}

// claim records the node that the folder belongs to. The folder of another node
// is rejected: its content was signed with another key.
func (f *Folder) claim(peerID string) error {
	if f.format.Node == peerID {
		return nil
	}
	if f.format.Node != "" {
		return &fault.Error{Op: folderOp, Kind: fault.Conflict,
			Detail: fmt.Sprintf("%s belongs to the node %s; this node is %s", f.path, f.format.Node, peerID),
			Next:   "Run with the identity of that node, or choose another folder."}
	}
	f.format.Node = peerID
	return f.writeFormat()
}

// keepRevocations records whose revocations the folder has, from now on.
func (f *Folder) keepRevocations(root string) error {
	if f.format.Revocations == root {
		return nil
	}
	f.format.Revocations = root
	return f.writeFormat()
}

// identity is the node's key in the folder. It is made the first time.
func (f *Folder) identity() (*Identity, error) {
	spec := "file:" + f.join(identityFile)
	const restore = "Restore it from a backup, or choose another folder."
	if _, err := os.Stat(f.join(identityFile)); err == nil {
		known, err := LoadIdentity(spec)
		if own, ok := errors.AsType[*fault.Error](err); ok {
			own.Next = restore // another key would be another node
		}
		return known, err
	}
	if f.format.Node != "" {
		return nil, &fault.Error{Op: folderOp, Kind: fault.Conflict, Next: restore,
			Detail: fmt.Sprintf("%s is missing: it is the key of the node %s, which owns this folder", f.join(identityFile), f.format.Node)}
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
	path := f.join(rootFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		var secret [32]byte
		_, _ = rand.Read(secret[:]) // it never fails
		if err := f.write(rootFile, append(hex.AppendEncode(nil, secret[:]), '\n')); err != nil {
			return nil, err
		}
	}
	root, err := capability.RootFrom("file:"+path, alloc)
	if err != nil {
		return nil, &fault.Error{Op: folderOp, Kind: fault.KindOf(err), Detail: path + " is not in the format of a node", Err: err,
			Next: "Restore it from a backup. Or remove it: the node then creates another, and all tokens minted under it are void."}
	}
	return root, nil
}

// write replaces a small file atomically, and returns when it is on the disk.
func (f *Folder) write(name string, text []byte) error {
	path := f.join(name)
	folder := filepath.Dir(path)
	file, err := os.CreateTemp(folder, "."+filepath.Base(path)+".*") // of mode 0600
	if err != nil {
		return folderError(folder, err)
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
		return folderError(folder, err)
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

func (f *Folder) join(names ...string) string {
	return filepath.Join(append([]string{f.path}, names...)...)
}

// Path is the path of the folder.
func (f *Folder) Path() string { return f.path }

// Close unlocks the folder.
func (f *Folder) Close() error {
	if f.lock == nil {
		return nil
	}
	return f.lock.Close()
}

// folderError explains why a folder cannot be written to.
func folderError(path string, err error) error {
	failed := &fault.Error{Op: folderOp, Kind: fault.Internal, Detail: path + " cannot be used", Err: err, Next: "Check the folder and the disk, or choose another folder."}
	switch {
	case disk.IsFull(err):
		failed.Kind, failed.Detail = fault.StoreFull, "the disk of "+path+" is full"
		failed.Next = "Free space on it, then try again."
	case disk.IsReadOnly(err):
		failed.Kind, failed.Next = fault.Forbidden, "Choose a folder with write permission."
	case fault.IsErrno(err, syscall.ENOTDIR), errors.Is(err, fs.ErrExist):
		failed.Kind, failed.Next = fault.Malformed, "Choose another folder: the path is a file."
	}
	return failed
}

// MigrateResult is the result of a migration.
type MigrateResult struct {
	Folder string `json:"folder"`
	From   int    `json:"from"`
	To     int    `json:"to"`
}

// Migrate converts a folder to the format of this program. There is one format
// so far, so it only checks that the folder has it.
func Migrate(path string) (MigrateResult, error) {
	if _, err := os.Stat(filepath.Join(path, formatFile)); err != nil {
		return MigrateResult{}, &fault.Error{Op: "migrate", Kind: fault.NotFound, Detail: path + " is not the folder of a node: it has no file " + formatFile,
			Next: "Name the folder of `micronode run --persist`."}
	}
	folder, err := OpenFolder(path)
	if older, ok := errors.AsType[*fault.Error](err); ok && older.Kind == fault.RejectPolicy {
		older.Next = "Run the version of micronode that wrote it, or choose another folder. Nothing was changed." // there is no migration from another format yet
	}
	if err != nil {
		return MigrateResult{}, err
	}
	defer folder.Close()
	return MigrateResult{Folder: folder.path, From: folder.format.Version, To: FolderFormat}, nil
}
