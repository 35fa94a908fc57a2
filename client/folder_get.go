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

// Got is what became of a GetFolder.
type Got struct {
	Files int   // that are there now
	Kept  int   // of these, how many were there before, and right
	Size  int64 // of all files
}

// GetFolder makes a folder hold the files of a manifest. Each file is verified,
// and appears under its name only when all its bytes have come and were right.
// What is there and right is kept, so a GetFolder that was broken off goes on
// where it was; what is there under the same name and wrong is replaced. Other
// files in the folder are left alone.
//
// A manifest may come from anybody, and the folder may have been somebody
// else's. So nothing is ever written outside of it: a link where a file or a
// folder goes is refused, as is a link in the place of the folder itself. These,
// and a file where a folder goes or the other way round, are [fault.Conflict],
// and found before anything is written.
//
// The folder is made if it is not there; the one around it must be. The disk is
// not waited for, as Download does: a folder may have very many files, and
// after a crash a GetFolder finds those that were lost.
func (c *Client) GetFolder(ctx context.Context, m Manifest, folder string, o FolderOptions) (Got, error) {
	if _, err := m.Encode(); err != nil {
		return Got{}, err // somebody may have put it together by hand
	}
	root, err := openTarget(folder)
	if err != nil {
		return Got{}, err
	}
	defer root.Close()
	g := &folderGetter{client: c, root: root, folder: folder, missing: o.Missing, sum: newTally(o.Progress, m.Size())}
	if g.missing == nil {
		g.missing = func(ctx context.Context, address b3.Address) error {
			_, err := c.FetchAnywhere(ctx, address)
			return err
		}
	}
	folders, err := g.survey(m.Entries)
	if err != nil {
		return Got{}, err
	}
	if err := g.make(folders); err != nil {
		return Got{}, err
	}
	err = eachAtOnce(ctx, o.Parallel, len(m.Entries), func(ctx context.Context, i int) error {
		return g.get(ctx, m.Entries[i])
	})
	if err != nil {
		return Got{}, err
	}
	return Got{Files: len(m.Entries), Kept: int(g.kept.Load()), Size: m.Size()}, nil
}

// openTarget opens the folder, and makes it if need be. A link in its place is
// refused: who says where files go should see where they go.
func openTarget(folder string) (*os.Root, error) {
	err := os.Mkdir(filepath.Clean(folder), 0o777)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, unwrittenFile(folder, err)
	}
	named, err := os.Lstat(filepath.Clean(folder)) // a slash at the end would follow a link
	if err != nil {
		return nil, unwrittenFile(folder, err)
	}
	if !named.IsDir() {
		return nil, inTheWay(folder, named.Mode(), "a folder")
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, unwrittenFile(folder, err)
	}
	opened, err := root.Stat(".")
	if err != nil || !os.SameFile(named, opened) {
		_ = root.Close() // nothing was done in it
		return nil, inTheWay(folder, fs.ModeSymlink, "a folder")
	}
	return root, nil
}

// inTheWay refuses to replace something by something else.
func inTheWay(where string, mode fs.FileMode, goes string) error {
	err := fault.New(getFolderOp, fault.Conflict, "%s is %s, and %s goes there", where, kindOfFile(mode), goes)
	err.Next = "Take it away, or choose another folder."
	return err
}

// unwrittenFile says what a failure of our own disk means.
func unwrittenFile(where string, err error) error {
	if errors.Is(err, syscall.ENAMETOOLONG) {
		failed := fault.New(getFolderOp, fault.Malformed, "%s is a longer name than this disk can hold", where)
		failed.Next = "Choose another disk, or fetch the file alone under another name."
		return failed
	}
	return fileFault(where, err)
}

// folderGetter is a GetFolder that is under way.
type folderGetter struct {
	// set at construction
	client  *Client
	root    *os.Root
	folder  string // as errors name it
	missing func(ctx context.Context, address b3.Address) error
	sum     *tally

	kept atomic.Int64
}

// where is a path of the manifest as errors name it.
func (g *folderGetter) where(name string) string {
	return filepath.Join(g.folder, filepath.FromSlash(name))
}

// survey looks at what is there, and finds all that is in the way before
// anything is changed. It returns the folders that the files need, the
// outermost first.
func (g *folderGetter) survey(entries []Entry) ([]string, error) {
	seen := map[string]bool{}
	for _, one := range entries {
		for folder := range foldersOf(one.Path) {
			if seen[folder] {
				continue
			}
			seen[folder] = true
			if err := g.clear(folder, fs.FileMode.IsDir, "a folder"); err != nil {
				return nil, err
			}
		}
		if err := g.clear(one.Path, fs.FileMode.IsRegular, "a file"); err != nil {
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

// clear makes sure that a name is free, or what it should be.
func (g *folderGetter) clear(name string, right func(fs.FileMode) bool, goes string) error {
	info, err := g.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return unwrittenFile(g.where(name), err)
	case !right(info.Mode()):
		return inTheWay(g.where(name), info.Mode(), goes)
	}
	return nil
}

// make makes the folders that are not there.
func (g *folderGetter) make(folders []string) error {
	for _, folder := range folders {
		if err := g.root.Mkdir(folder, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
			return unwrittenFile(g.where(folder), err)
		}
	}
	return nil
}

// get makes one file be there.
func (g *folderGetter) get(ctx context.Context, one Entry) error {
	right, err := g.isThere(ctx, one)
	if err != nil {
		return unwrittenFile(g.where(one.Path), err)
	}
	if right {
		g.kept.Add(1)
		g.sum.add(one.Size)
		return nil
	}
	object, err := g.open(ctx, one)
	if err != nil {
		return concerning(getFolderOp, g.where(one.Path), err)
	}
	defer object.Close()
	err = g.write(one, object)
	if _, ofTheNode := errors.AsType[*fault.Error](err); ofTheNode {
		return concerning(getFolderOp, g.where(one.Path), err)
	}
	return unwrittenFile(g.where(one.Path), err)
}

// isThere reports whether a file has the right bytes already. Whether it is a
// program is put right on the way.
func (g *folderGetter) isThere(ctx context.Context, one Entry) (bool, error) {
	info, err := g.root.Lstat(one.Path)
	if err != nil || info.Size() != one.Size || !info.Mode().IsRegular() {
		return false, nil // if it is in the way, the rename says so
	}
	file, err := g.root.OpenFile(one.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false, nil // we may not read it, but perhaps replace it
	}
	defer file.Close()
	address, _, err := addressOf(ctx, file)
	if err != nil || address != one.B3 || executable(info) == one.Exec {
		return err == nil && address == one.B3, err
	}
	mode := info.Mode().Perm() &^ 0o111
	if one.Exec {
		mode |= mode >> 2 & 0o111 // who may read it may run it
	}
	return true, file.Chmod(mode)
}

// open begins a transfer. If the node does not have the object, it gets it
// first.
func (g *folderGetter) open(ctx context.Context, one Entry) (*Reader, error) {
	o := GetOptions{Progress: g.sum.part()}
	object, err := g.client.Get(ctx, one.B3, o)
	if fault.KindOf(err) == fault.NotFound {
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
		return nil, lied(one, size)
	}
	return object, nil
}

// lied is for a manifest that says something else than the object.
func lied(one Entry, size int64) error {
	return malformed(notOurs, "the manifest says that it has %d bytes, but %s has %d", one.Size, one.B3, size)
}

// write is all or nothing: the bytes go to a file beside, which takes the name
// when it is right. A link that somebody puts there meanwhile is replaced, not
// followed.
func (g *folderGetter) write(one Entry, object *Reader) (err error) {
	beside := path.Join(path.Dir(one.Path), fmt.Sprintf(".micronode-%016x.part", rand.Uint64()))
	mode := fs.FileMode(0o666)
	if one.Exec {
		mode = 0o777
	}
	file, err := g.root.OpenFile(beside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = g.root.Remove(beside)
		}
	}()
	n, err := io.Copy(file, io.LimitReader(object, one.Size+1))
	if err == nil && n != one.Size {
		err = lied(one, n)
	}
	if closing := file.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return err
	}
	return g.root.Rename(beside, one.Path)
}
