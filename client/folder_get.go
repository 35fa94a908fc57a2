package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"

	"micronode/b3"
	"micronode/fault"
)

const getFolderOp = "client.getfolder"

// Got is the result of GetFolder.
type Got struct {
	Files int   // now in the folder
	Kept  int   // of these, how many were there before, and right
	Size  int64 // of all files
}

// GetFolder makes a folder hold the files of a manifest. Each file is
// verified, and appears under its name only when all its bytes have arrived
// and were right. A file that is there and right is kept, so an interrupted
// GetFolder can be resumed by calling it again; a wrong one with the same name
// is replaced. Other files in the folder are not touched.
//
// A manifest may come from anybody, and another user may have made the folder.
// So nothing is ever written outside of it: a link in the place of a file or a
// folder is refused, as is a link in the place of the folder itself. These,
// and a file in the place of a folder or the other way round, are
// [fault.Conflict], and are found before anything is written.
//
// The folder is made if it does not exist; its parent must exist. Unlike
// Download, GetFolder does not sync the files to disk: a folder may have very
// many files, and after a crash another GetFolder restores those that were
// lost.
func (c *Client) GetFolder(ctx context.Context, m Manifest, folder string, o FolderOptions) (Got, error) {
	raw, err := m.Encode() // a caller may have built it by hand
	if err != nil {
		return Got{}, err
	}
	root, err := openTarget(folder)
	if err != nil {
		return Got{}, err
	}
	defer root.Close()
	g := &folderGetter{client: c, root: root, folder: folder, missing: o.Missing, mayFetch: o.Fetch || o.Missing == nil, progress: newTally(o.Progress, m.Size())}
	if g.missing == nil {
		g.missing = func(ctx context.Context, address b3.Address) error {
			_, err := c.FetchAnywhere(ctx, address)
			return err
		}
	}
	folders, err := g.checkTarget(m.Entries)
	if err != nil {
		return Got{}, err
	}
	if err := g.makeFolders(folders); err != nil {
		return Got{}, err
	}
	if len(m.Entries) < manyFiles {
		err = forEachParallel(ctx, o.Parallel, len(m.Entries), func(ctx context.Context, i int) error { return g.get(ctx, m.Entries[i]) })
	} else {
		err = g.getMany(ctx, o.Parallel, b3.Of(raw), m.Entries)
	}
	if err != nil {
		return Got{}, err
	}
	return Got{Files: len(m.Entries), Kept: int(g.kept.Load()), Size: m.Size()}, nil
}

// openTarget opens the folder, and makes it if necessary. A link in its place
// is refused: the folder that the caller names must be the one that is written
// to.
func openTarget(folder string) (*os.Root, error) {
	err := os.Mkdir(filepath.Clean(folder), 0o777)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, writeFileError(folder, err)
	}
	named, err := os.Lstat(filepath.Clean(folder)) // a slash at the end would follow a link
	if err != nil {
		return nil, writeFileError(folder, err)
	}
	if !named.IsDir() {
		return nil, conflictError(folder, named.Mode(), "a folder")
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, writeFileError(folder, err)
	}
	opened, err := root.Stat(".")
	if err != nil || !os.SameFile(named, opened) {
		_ = root.Close() // nothing was done in it
		return nil, conflictError(folder, fs.ModeSymlink, "a folder")
	}
	return root, nil
}

// conflictError refuses to replace a file or a folder by one of another kind.
func conflictError(where string, mode fs.FileMode, goes string) error {
	return fault.New(getFolderOp, fault.Conflict, "%s is %s, where %s would be written", where, fileKind(mode), goes).
		Advise("Remove it, or choose another folder.")
}

// writeFileError classifies a failure of our own disk.
func writeFileError(where string, err error) error {
	if fault.IsErrno(err, syscall.ENAMETOOLONG) {
		return fault.New(getFolderOp, fault.Malformed, "the name %s is too long for this file system", where).
			Advise("Choose another file system, or fetch the file alone under another name.")
	}
	return fileError(where, err)
}

// folderGetter is a GetFolder that is under way.
type folderGetter struct {
	// set at construction
	client   *Client
	root     *os.Root
	folder   string // as errors name it
	missing  func(ctx context.Context, address b3.Address) error
	mayFetch bool // the node may fetch files from other nodes
	progress *progressSum

	kept   atomic.Int64
	copies atomic.Bool // the file system shares no bytes with the node's
	absent atomic.Bool // the node does not have all files
	singly atomic.Bool // nobody sends files that the node does not have together
}

// label is a path of the manifest as errors name it.
func (g *folderGetter) label(name string) string {
	return filepath.Join(g.folder, filepath.FromSlash(name))
}

// checkTarget examines the folder, and finds all conflicts before anything is
// changed. It returns the folders that the files need, the outermost first.
func (g *folderGetter) checkTarget(entries []Entry) ([]string, error) {
	seen := map[string]bool{}
	for _, one := range entries {
		for folder := range foldersOf(one.Path) {
			if seen[folder] {
				continue
			}
			seen[folder] = true
			if err := g.checkFree(folder, fs.FileMode.IsDir, "a folder"); err != nil {
				return nil, err
			}
		}
		if err := g.checkFree(one.Path, fs.FileMode.IsRegular, "a file"); err != nil {
			return nil, err
		}
	}
	folders := make([]string, 0, len(seen))
	for folder := range seen {
		folders = append(folders, folder)
	}
	slices.Sort(folders)
	return folders, nil
}

// checkFree checks that a name is free, or already the right kind of file.
func (g *folderGetter) checkFree(name string, right func(fs.FileMode) bool, goes string) error {
	info, err := g.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return writeFileError(g.label(name), err)
	case !right(info.Mode()):
		return conflictError(g.label(name), info.Mode(), goes)
	}
	return nil
}

// makeFolders makes the missing folders.
func (g *folderGetter) makeFolders(folders []string) error {
	for _, folder := range folders {
		if err := g.root.Mkdir(folder, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
			return writeFileError(g.label(folder), err)
		}
	}
	return nil
}

// get makes sure that one file is complete.
func (g *folderGetter) get(ctx context.Context, one Entry) error {
	if kept, err := g.keep(ctx, one); kept || err != nil {
		return err
	}
	return g.fetch(ctx, one)
}

// keep reports whether a file is complete already, and counts it.
func (g *folderGetter) keep(ctx context.Context, one Entry) (bool, error) {
	right, err := g.isComplete(ctx, one)
	if err != nil {
		return false, writeFileError(g.label(one.Path), err)
	}
	if right {
		g.kept.Add(1)
		g.progress.add(one.Size)
	}
	return right, nil
}

// fetch gets one file from the node.
func (g *folderGetter) fetch(ctx context.Context, one Entry) error {
	if cloned, err := g.clone(ctx, one); cloned || err != nil {
		return g.writeError(one, err)
	}
	object, err := g.open(ctx, one)
	if err != nil {
		return withPath(getFolderOp, g.label(one.Path), err)
	}
	defer object.Close()
	return g.writeError(one, g.write(one, object))
}

// writeError is the error of a file that could not be written, or was not sent
// as it is.
func (g *folderGetter) writeError(one Entry, err error) error {
	if err == nil {
		return nil
	}
	if _, ofTheNode := errors.AsType[*fault.Error](err); ofTheNode {
		return withPath(getFolderOp, g.label(one.Path), err)
	}
	return writeFileError(g.label(one.Path), err)
}

// isComplete reports whether a file has the right bytes already. It also
// corrects whether the file is executable.
func (g *folderGetter) isComplete(ctx context.Context, one Entry) (bool, error) {
	info, err := g.root.Lstat(one.Path)
	if err != nil || info.Size() != one.Size || !info.Mode().IsRegular() {
		return false, nil // if it is in the way, the rename fails
	}
	file, err := g.root.OpenFile(one.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false, nil // we may not read it, but perhaps replace it
	}
	defer file.Close()
	address, _, err := addressOf(ctx, file, func([]byte) {})
	if err != nil || address != one.B3 || executable(info) == one.Exec {
		return err == nil && address == one.B3, err
	}
	mode := info.Mode().Perm() &^ 0o111
	if one.Exec {
		mode |= mode >> 2 & 0o111 // users who may read it may run it
	}
	return true, file.Chmod(mode)
}

// open begins a transfer. What the node does not have comes while it fetches it,
// if it may; otherwise, and if nobody has it, open calls Missing first.
func (g *folderGetter) open(ctx context.Context, one Entry) (*Reader, error) {
	o := GetOptions{Progress: g.progress.transfer()}
	object, err := g.client.Get(ctx, one.B3, o)
	if fault.KindOf(err) == fault.NotFound && g.mayFetch {
		o.Fetch = true // the bytes come while the node fetches it
		object, err = g.client.Get(ctx, one.B3, o)
		o.Fetch = false
	}
	if kind := fault.KindOf(err); kind == fault.NotFound || kind == fault.MethodNotAllowed && g.mayFetch {
		if err := g.missing(ctx, one.B3); err != nil {
			return nil, err
		}
		object, err = g.client.Get(ctx, one.B3, o)
	}
	if err != nil {
		return nil, err
	}
	if size := object.Size(); size >= 0 && size != one.Size {
		_ = object.Close() // it never fails
		return nil, sizeMismatchError(one, size)
	}
	return object, nil
}

// sizeMismatchError is for a manifest whose size differs from the object's.
func sizeMismatchError(one Entry, size int64) error {
	return manifestError(remakeHint, "the manifest says that it has %d bytes, but %s has %d", one.Size, one.B3, size)
}

// clone makes a file that shares its bytes with that of the node. It reports
// false if that cannot be.
func (g *folderGetter) clone(ctx context.Context, one Entry) (cloned bool, err error) {
	if one.Size < minClone || g.copies.Load() {
		return false, nil
	}
	stored := g.client.openStored(ctx, one.B3)
	if stored == nil {
		return false, nil
	}
	defer stored.Close()
	if stored.size != one.Size {
		return false, nil // the transfer says so
	}
	progress := g.progress.transfer()
	err = g.place(one, func(file *os.File) (bool, error) {
		cloned, err = stored.clone(ctx, file, one.B3, progress)
		return cloned, err
	})
	if !cloned {
		g.copies.Store(true)
		progress(0, one.Size) // it is sent now
	}
	return cloned, err
}

// write writes the whole file or nothing.
func (g *folderGetter) write(one Entry, object io.Reader) error {
	return g.place(one, func(file *os.File) (bool, error) {
		n, err := io.Copy(file, io.LimitReader(object, one.Size+1))
		if err == nil && n != one.Size {
			err = sizeMismatchError(one, n)
		}
		return true, err
	})
}

// place has a temporary file filled, and renames it when it is right. A link
// that appears there meanwhile is replaced, not followed. It is removed if it
// was not filled.
func (g *folderGetter) place(one Entry, fill func(file *os.File) (filled bool, err error)) (err error) {
	temp := path.Join(path.Dir(one.Path), fmt.Sprintf(".micronode-%016x.part", rand.Uint64()))
	mode := fs.FileMode(0o666)
	if one.Exec {
		mode = 0o777
	}
	file, err := g.root.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	filled := false
	defer func() {
		if err != nil || !filled {
			_ = g.root.Remove(temp)
		}
	}()
	filled, err = fill(file)
	if closing := file.Close(); err == nil {
		err = closing
	}
	if err != nil || !filled {
		return err
	}
	return g.root.Rename(temp, one.Path)
}
