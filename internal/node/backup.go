package node

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/disk"
	"micronode/internal/terminal"
)

// A backup is a tar of a node's folder, made while the node runs, with a list
// of what is in it at its end. Files that grow are logs: what is read of one is
// its beginning, up to a length that was taken after the backup began, so all
// that was acknowledged before is there, and what was under way is a torn end,
// as after a crash. Objects never change. What can be made anew stays behind:
// the cache of origins, the catalogue of search, and what was being written.

const (
	backupOp       = "node.backup"
	restoreOp      = "node.restore"
	backupList     = "BACKUP.json" // the last file of a backup
	backupVersion  = 1
	maxBackupList  = 1 << 30
	backupFileMode = 0o600
)

// BackupReport is what a backup has in it.
type BackupReport struct {
	Version int           `json:"version"`
	Made    time.Time     `json:"made"`
	Files   []BackupFile  `json:"files"`
	Damaged []DamagedFile `json:"damaged,omitempty"` // objects that are not in it
}

// DamagedFile is a file of an object that has not the bytes of its address.
type DamagedFile struct {
	Path    string     `json:"path"` // in the folder, with slashes
	Address b3.Address `json:"address"`
}

// DamageError returns why a backup is not of everything, or nil.
func (r *BackupReport) DamageError() error {
	if len(r.Damaged) == 0 {
		return nil
	}
	return fault.New(backupOp, fault.IntegrityFail, "%s damaged and not in the backup; all the rest is", terminal.Pluralize(len(r.Damaged), "object")).
		Advise("Get them again with micronode get or micronode put, or remove them with micronode rm, and make another backup. Check the disk (dmesg, smartctl).")
}

// BackupFile is a file of a backup.
type BackupFile struct {
	Path string     `json:"path"` // in the folder, with slashes
	Size int64      `json:"size"`
	Hash b3.Address `json:"hash"`
}

// Bytes is the size of all files.
func (r *BackupReport) Bytes() (sum int64) {
	for _, one := range r.Files {
		sum += one.Size
	}
	return sum
}

// leftBehind are the folders of a node's folder that are not in its backup.
var leftBehind = []string{edgeFolder, searchFolder, objectsFolder + "/tmp", objectsFolder + "/partial", objectsFolder + "/quarantine"}

// Backup writes a backup of a folder. The node may run meanwhile.
func Backup(ctx context.Context, folder string, to io.Writer) (*BackupReport, error) {
	root, err := filepath.EvalSymlinks(folder) // a service's folder is a link to where it really is
	if err != nil {
		return nil, folderError(folder, err)
	}
	f := &Folder{path: root}
	if !isOfAnother(root) {
		if err := f.checkContents(); err != nil {
			return nil, err
		}
	}
	if err := f.readFormat(); err != nil {
		return nil, err
	}
	if f.isNew() {
		return nil, &fault.Error{Op: backupOp, Kind: fault.NotFound, Detail: f.path + " is not the folder of a node", Next: "Name the folder of micronode run --persist."}
	}
	files, err := os.OpenRoot(f.path)
	if err != nil {
		return nil, folderError(f.path, err)
	}
	defer files.Close()
	b := &backup{ctx: ctx, root: f.path, files: files, tar: tar.NewWriter(to), done: map[string]bool{}, report: BackupReport{Version: backupVersion, Made: time.Now().UTC()}}

	// Keys and logs come first, so that an object that a log speaks of is
	// there when objects are read. Of the registry, what depends on the
	// segments is read before them, because they grow.
	prune := filepath.Join(f.path, registryFolder, "prune")
	before, _ := disk.StampOfPath(prune) // zero if there is none
	registry := registryFolder + "/segments"
	if err := b.addFolder(".", append([]string{objectsFolder, registry}, leftBehind...)); err != nil {
		return nil, err
	}
	if err := b.addFolder(registry, nil); err != nil {
		return nil, err
	}
	if after, _ := disk.StampOfPath(prune); after != before {
		return nil, &fault.Error{Op: backupOp, Kind: fault.StorageBusy, Detail: "the registry was pruned while it was read", Next: "Make the backup again."}
	}

	// An object may be kept for longer while the others are read, which moves it,
	// so those that are kept are looked for twice.
	for _, class := range []string{"pinned", "named", "cached", "named", "pinned"} {
		if err := b.addFolder(objectsFolder+"/"+class, nil); err != nil {
			return nil, err
		}
	}

	list, err := json.Marshal(b.report)
	if err != nil {
		return nil, fault.Wrap(backupOp, err)
	}
	if err := b.write(backupList, int64(len(list)), bytes.NewReader(list)); err != nil {
		return nil, err
	}
	return &b.report, fault.Wrap(backupOp, b.tar.Close())
}

// isOfAnother reports whether root reads the folder of another user, such as
// that of a service. Nothing in it is trusted: what is read stays in the folder,
// wherever its owner lets a link lead.
func isOfAnother(folder string) bool {
	info, err := os.Lstat(folder)
	if err != nil || os.Geteuid() != 0 {
		return false
	}
	owner, known := disk.Owner(info)
	return known && owner != 0
}

// backup is a backup that is being written.
type backup struct {
	ctx    context.Context
	root   string
	files  *os.Root
	tar    *tar.Writer
	done   map[string]bool // the paths that are in it
	report BackupReport
}

// addFolder adds what is in a folder and below it, by name. A folder that is
// not there has nothing in it.
func (b *backup) addFolder(folder string, except []string) error {
	return filepath.WalkDir(filepath.Join(b.root, filepath.FromSlash(folder)), func(path string, entry fs.DirEntry, err error) error {
		below, relErr := filepath.Rel(b.root, path)
		below = filepath.ToSlash(below)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil || relErr != nil:
			return fault.Wrap(backupOp, errors.Join(err, relErr))
		case b.ctx.Err() != nil:
			return fault.WrapKind(backupOp, fault.Canceled, context.Cause(b.ctx))
		case entry.IsDir() && slices.Contains(except, below):
			return fs.SkipDir
		case !entry.Type().IsRegular() || b.done[below] || entry.Name() == lockFile:
			return nil
		}
		return b.addFile(path, below)
	})
}

// addFile adds a file as long as it is now. What is gone was evicted, deleted or
// renamed meanwhile; of a registry, see Backup.
func (b *backup) addFile(path, below string) error {
	file, err := b.files.Open(filepath.FromSlash(below))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return folderError(path, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return folderError(path, err)
	}
	if address, size, isObject := parseObjectName(below); isObject {
		body := new(b3.Hasher)
		if _, err := io.Copy(body, io.LimitReader(file, size)); err != nil {
			return folderError(path, err)
		}
		if body.Sum() != address {
			b.noteDamaged(below, address) // the node puts it aside as soon as somebody asks for it
			return nil
		}
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return folderError(path, err)
		}
	}
	b.done[below] = true
	return b.write(below, info.Size(), file)
}

// noteDamaged notes an object that is left out. A folder may be read twice.
func (b *backup) noteDamaged(path string, address b3.Address) {
	if !slices.ContainsFunc(b.report.Damaged, func(one DamagedFile) bool { return one.Address == address }) {
		b.report.Damaged = append(b.report.Damaged, DamagedFile{path, address})
	}
}

// write writes a file of a known length, and lists it with its hash.
func (b *backup) write(name string, size int64, from io.Reader) error {
	header := tar.Header{Name: name, Mode: backupFileMode, Size: size, ModTime: b.report.Made.Truncate(time.Second), Format: tar.FormatPAX}
	if err := b.tar.WriteHeader(&header); err != nil {
		return fault.Wrap(backupOp, err)
	}
	hash := new(b3.Hasher)
	n, err := io.Copy(io.MultiWriter(b.tar, hash), io.LimitReader(from, size))
	if err == nil && n < size {
		err = fmt.Errorf("%s became shorter while it was read: %w", name, io.ErrUnexpectedEOF)
	}
	if err != nil {
		return fault.Wrap(backupOp, err)
	}
	if name != backupList {
		b.report.Files = append(b.report.Files, BackupFile{name, size, hash.Sum()})
	}
	return nil
}

// parseObjectName reads the address and the size of an object out of the path of
// its file.
func parseObjectName(path string) (a b3.Address, size int64, ok bool) {
	digits, length, found := strings.Cut(path[strings.LastIndexByte(path, '/')+1:], "-")
	if !found || !strings.HasPrefix(path, objectsFolder+"/") {
		return a, 0, false
	}
	a, err := b3.Parse("b3:" + digits)
	size, sizeErr := strconv.ParseInt(length, 10, 64)
	return a, size, err == nil && sizeErr == nil && size >= 0
}

// Restore makes a folder of a backup, which must not exist yet. It verifies
// every file against the list, and the folder as a node does that opens it.
// A folder that fails is removed.
func Restore(ctx context.Context, from io.Reader, folder string) (report *BackupReport, err error) {
	if err := os.MkdirAll(filepath.Dir(filepath.Clean(folder)), 0o700); err != nil {
		return nil, folderError(folder, err)
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		failed := folderError(folder, err)
		if errors.Is(err, fs.ErrExist) {
			failed = &fault.Error{Op: restoreOp, Kind: fault.Conflict, Detail: folder + " exists", Next: "Name a folder that does not exist yet. Nothing was changed."}
		}
		return nil, failed
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(folder))
		}
	}()
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, folderError(folder, err)
	}
	defer root.Close()
	got, list, err := unpack(ctx, from, root)
	if err != nil {
		return nil, err
	}

	// The list is the last file, so a backup without it was cut short.
	if err := json.Unmarshal(list, &report); list == nil || err != nil || report == nil {
		return nil, badBackup("its list is missing: it was cut short, or it is no backup")
	}
	if report.Version != backupVersion {
		return nil, &fault.Error{Op: restoreOp, Kind: fault.RejectPolicy, Detail: fmt.Sprintf("the backup is of version %d; this program reads version %d", report.Version, backupVersion),
			Next: "Restore it with the version of micronode that made it. Nothing was restored."}
	}
	if len(got) != len(report.Files) {
		return nil, badBackup(fmt.Sprintf("it has %d files, and its list %d", len(got), len(report.Files)))
	}
	for _, one := range report.Files {
		if got[one.Path] != one.Hash {
			return nil, badBackup(one.Path + " is not what was written")
		}
	}
	opened, err := OpenFolder(folder)
	if err != nil {
		return nil, err
	}
	return report, opened.Close()
}

func badBackup(detail string) error {
	return &fault.Error{Op: restoreOp, Kind: fault.IntegrityFail, Detail: "the backup is damaged: " + detail, Next: "Nothing was restored. Take another backup."}
}

// unpack writes the files of a backup to a folder, and returns their hashes and
// the list. The root keeps a path from leading elsewhere.
func unpack(ctx context.Context, from io.Reader, root *os.Root) (hashes map[string]b3.Address, list []byte, err error) {
	hashes = map[string]b3.Address{}
	folders := map[string]bool{".": true}
	for reader := tar.NewReader(from); ; {
		header, err := reader.Next()
		switch {
		case err == io.EOF:
			return hashes, list, syncFolders(root, folders)
		case err != nil:
			return nil, nil, badBackup(err.Error())
		case ctx.Err() != nil:
			return nil, nil, fault.WrapKind(restoreOp, fault.Canceled, context.Cause(ctx))
		case header.Typeflag != tar.TypeReg || list != nil:
			return nil, nil, badBackup("it has " + strconv.Quote(header.Name) + ", which no backup has")
		case header.Name == backupList:
			if list, err = io.ReadAll(io.LimitReader(reader, maxBackupList)); err != nil {
				return nil, nil, badBackup(err.Error())
			}
			continue
		}
		folder := filepath.Dir(filepath.FromSlash(header.Name))
		if !folders[folder] {
			if err := root.MkdirAll(folder, 0o700); err != nil {
				return nil, nil, folderError(header.Name, err)
			}
			for at := folder; !folders[at]; at = filepath.Dir(at) {
				folders[at] = true
			}
		}
		if hashes[header.Name], err = unpackFile(root, header.Name, reader); err != nil {
			return nil, nil, err
		}
	}
}

func unpackFile(root *os.Root, name string, from io.Reader) (b3.Address, error) {
	file, err := root.OpenFile(filepath.FromSlash(name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, backupFileMode)
	if err != nil {
		return b3.Address{}, folderError(name, err)
	}
	hash := new(b3.Hasher)
	_, err = io.Copy(io.MultiWriter(file, hash), from)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		_ = file.Close() // it is removed
		return b3.Address{}, badBackup("it ends in " + name)
	}
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return b3.Address{}, folderError(name, err)
	}
	return hash.Sum(), nil
}

func syncFolders(root *os.Root, folders map[string]bool) error {
	for folder := range folders {
		if err := disk.SyncFolder(filepath.Join(root.Name(), folder)); err != nil {
			return folderError(folder, err)
		}
	}
	return nil
}
