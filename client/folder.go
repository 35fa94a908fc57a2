package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"micronode/b3"
	"micronode/fault"
)

// defaultParallel is how many files of a folder are under way by default.
const defaultParallel = 4

// FolderOptions are the options of PutFolder and GetFolder. All are optional.
type FolderOptions struct {
	// Parallel is how many files are under way at once. Zero means 4.
	Parallel int

	// Progress is called with the number of bytes of all files that are done,
	// and their total. It is called often, by several goroutines at once, and
	// should be quick.
	Progress func(done, total int64)

	// Skipped is called by PutFolder with the path of each link and device that
	// is no part of the folder, and with what it is, before anything is sent.
	// If it is nil, they are refused.
	Skipped func(path, kind string)

	// FollowLinks makes PutFolder store a file that a link inside of the folder
	// leads to, as if it were there. A link to a folder, or out of the folder,
	// is a link as before.
	FollowLinks bool

	// Named makes PutFolder store everything for a name of the node, which is
	// set next: see PutOptions.
	Named bool

	// Missing is called by GetFolder for an object that the node does not
	// have, before it requests it once more. If it is nil, that is
	// FetchAnywhere, and Fetch is set: files are then fetched from as many
	// providers as there are, several at once.
	Missing func(ctx context.Context, address b3.Address) error

	// Fetch makes the node fetch the files that it does not have from other nodes:
	// the small ones of a large folder many at a time, and each larger one while it
	// is read. Missing is called for those that this does not bring. It takes a capability with the scope object:put.
	Fetch bool
}

// Folder is a folder that a node has.
type Folder struct {
	Address  b3.Address // of the manifest
	Size     int64      // of the manifest
	Manifest Manifest
	Sent     int // how many files the node did not have before
}

const putFolderOp = "client.putfolder"

// PutFolder stores all files of a folder, and a [Manifest] with their paths
// and addresses. Only files that the node does not have are sent, small ones of
// a large folder many at a time. The manifest is stored last, so the files of a
// manifest that can be found are there too.
//
// A folder is its files: empty folders are dropped, and times and owners are
// not kept, only whether a file is a program. Links and devices have a
// meaning on this machine only: they are skipped with a call of Skipped, or
// refused by name without it. Names that other machines could not write are
// always refused.
func (c *Client) PutFolder(ctx context.Context, folder string, o FolderOptions) (Folder, error) {
	root, err := openSource(folder)
	if err != nil {
		return Folder{}, readFileError(folder, err)
	}
	defer root.Close()
	entries, err := listFiles(root.FS(), folder, o)
	if err != nil {
		return Folder{}, err
	}
	whole := Folder{Manifest: Manifest{Entries: entries}}
	p := &folderPutter{client: c, root: root, folder: folder, entries: entries, follow: o.FollowLinks, named: o.Named, parallel: o.Parallel, progress: newTally(o.Progress, whole.Manifest.Size())}
	if len(entries) < manyFiles {
		err = p.putEach(ctx)
	} else {
		err = p.putMany(ctx)
	}
	if err != nil {
		return Folder{}, err
	}
	whole.Sent = int(p.sent.Load())
	raw, err := whole.Manifest.Encode()
	if err != nil {
		return Folder{}, err
	}
	object, err := c.Put(ctx, bytes.NewReader(raw), PutOptions{Size: int64(len(raw)), Want: b3.Of(raw), Named: o.Named})
	if err != nil {
		return Folder{}, err
	}
	whole.Address, whole.Size = object.Address, object.Size
	return whole, nil
}

func openSource(folder string) (*os.Root, error) {
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return nil, cmp.Or(err, error(syscall.ENOTDIR))
	}
	return os.OpenRoot(folder)
}

// listFiles finds the files of a folder, in the order of their paths' bytes.
// It does not read them yet: files that cannot be part of a manifest are
// skipped or refused before the first byte is sent.
func listFiles(source fs.FS, folder string, o FolderOptions) ([]Entry, error) {
	var entries []Entry
	err := fs.WalkDir(source, ".", func(path string, found fs.DirEntry, err error) error {
		where := filepath.Join(folder, filepath.FromSlash(path))
		switch {
		case err != nil:
			return readFileError(where, err)
		case found.IsDir():
			return nil
		}
		info, err := found.Info()
		if err != nil {
			return readFileError(where, err)
		}
		if o.FollowLinks && found.Type()&fs.ModeSymlink != 0 {
			if target, err := fs.Stat(source, path); err == nil && target.Mode().IsRegular() {
				info = target
			}
		}
		switch {
		case !info.Mode().IsRegular() && o.Skipped != nil:
			o.Skipped(where, fileKind(info.Mode()))
			return nil
		case !info.Mode().IsRegular():
			return notRegularError(where, info.Mode())
		case len(entries) == MaxEntries:
			return tooManyEntries()
		}
		entries = append(entries, Entry{Path: path, Size: info.Size(), Exec: executable(info)})
		return CheckPath(path)
	})
	slices.SortFunc(entries, byPath)
	return entries, err
}

func executable(info fs.FileInfo) bool { return info.Mode().Perm()&0o111 != 0 }

// notRegularError refuses anything that is neither a file nor a folder.
func notRegularError(where string, mode fs.FileMode) error {
	return fault.New(putFolderOp, fault.Malformed, "%s is %s; a folder may contain files only", where, fileKind(mode)).
		Advise("Remove it from the folder, or replace it by a file.")
}

func fileKind(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeSymlink != 0:
		return "a link"
	case mode.IsDir():
		return "a folder"
	case mode.IsRegular():
		return "a file"
	default:
		return "a device, a pipe or a socket"
	}
}

// readFileError classifies a failure to read from our own disk.
func readFileError(where string, err error) error {
	if _, typed := errors.AsType[*fault.Error](err); typed {
		return err
	}
	failed := &fault.Error{Op: putFolderOp, Kind: fault.KindOf(err), Detail: where + " cannot be read", Err: withoutPath(err),
		Next: "Check the file and the disk, then put the folder again."}
	switch {
	case fault.IsErrno(err, syscall.ENOTDIR):
		failed.Kind, failed.Next = fault.Malformed, "Name a folder; this is not one."
	case errors.Is(err, fs.ErrNotExist):
		failed.Kind, failed.Next = fault.NotFound, "Check its name, and that no other program removes it meanwhile."
	case errors.Is(err, fs.ErrPermission):
		failed.Kind, failed.Next = fault.Forbidden, "Ask its owner for read permission."
	}
	return failed
}

// withoutPath is the error without the name of the file, which is in the
// detail.
func withoutPath(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}

// localFile is a file that is being put.
type localFile struct {
	root   *os.Root
	label  string // as errors name it
	follow bool   // it may be a link, to a file in the folder
	named  bool   // it is kept for a name
}

// put reads a file twice: once for its address, and again if the node does not
// have it. A file that changes in between is detected.
func (f localFile) put(ctx context.Context, c *Client, entry *Entry, sum *progressSum) (created bool, err error) {
	if err := f.address(ctx, entry); err != nil {
		return false, err
	}
	have, err := c.Stat(ctx, entry.B3)
	if err == nil && have.Size == entry.Size {
		missing, err := c.missing(ctx, []b3.Address{entry.B3}, f.named) // what is there stays, as if it were put
		kind := fault.KindOf(err)
		earlier := kind == fault.NotFound || kind == fault.MethodNotAllowed // the node does not know the question
		if err != nil && !earlier {
			return false, withPath(putFolderOp, f.label, err)
		}
		if len(missing) == 0 {
			sum.add(entry.Size)
			return false, nil
		}
	} else if err != nil && fault.KindOf(err) != fault.NotFound {
		return false, withPath(putFolderOp, f.label, err)
	}
	return f.send(ctx, c, *entry, sum)
}

// address computes the address, the size and the type of a file.
func (f localFile) address(ctx context.Context, entry *Entry) error {
	file, err := f.open(entry.Path)
	if err != nil {
		return readFileError(f.label, err)
	}
	defer file.Close()
	if err := f.measure(ctx, file, entry); err != nil {
		return readFileError(f.label, err)
	}
	return nil
}

// send stores a file whose address is known.
func (f localFile) send(ctx context.Context, c *Client, entry Entry, sum *progressSum) (created bool, err error) {
	file, err := f.open(entry.Path)
	if err != nil {
		return false, readFileError(f.label, err)
	}
	defer file.Close()
	part := sum.transfer()
	object, err := c.Put(ctx, file, PutOptions{Size: entry.Size, Want: entry.B3, Named: f.named, Progress: part, Resume: true})
	if err != nil {
		return false, withPath(putFolderOp, f.label, err)
	}
	part(entry.Size, entry.Size)
	return object.Created, nil
}

// open opens the file that the walk has seen, and rejects anything that has
// replaced it since. Opening a pipe would block, hence O_NONBLOCK. No link leads
// out of the root.
func (f localFile) open(path string) (*os.File, error) {
	look := f.root.Lstat
	if f.follow {
		look = f.root.Stat
	}
	named, err := look(path)
	if err != nil {
		return nil, err
	}
	if !named.Mode().IsRegular() {
		return nil, notRegularError(f.label, named.Mode())
	}
	file, err := f.root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if opened, err := file.Stat(); err != nil || !os.SameFile(opened, named) {
		_ = file.Close() // nothing was written to it
		return nil, cmp.Or(err, notRegularError(f.label, fs.ModeSymlink))
	}
	return file, nil
}

// measure computes the address, the size and the type of an open file.
func (f localFile) measure(ctx context.Context, file *os.File, entry *Entry) (err error) {
	entry.B3, entry.Size, err = addressOf(ctx, file, func(begin []byte) { entry.Type = contentType(entry.Path, begin) })
	return err
}

// hashBuffers is what files are read into for their addresses: a folder may have
// thousands, and one of 256 KiB for each would be all that the garbage collector
// does.
var hashBuffers = sync.Pool{New: func() any { return new([256 << 10]byte) }}

// addressOf reads to the end, or until the context ends. It calls sniff with the
// beginning, which is as long as sniffLen if there is so much.
func addressOf(ctx context.Context, from io.Reader, sniff func(begin []byte)) (b3.Address, int64, error) {
	if ctx.Err() != nil {
		return b3.Address{}, 0, ctx.Err()
	}
	var hash b3.Hasher
	buffer := hashBuffers.Get().(*[256 << 10]byte)
	defer hashBuffers.Put(buffer)
	n, err := io.ReadAtLeast(from, buffer[:], sniffLen)
	sniff(buffer[:min(n, sniffLen)])
	for ctx.Err() == nil {
		_, _ = hash.Write(buffer[:n]) // it never fails
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return hash.Sum(), hash.N(), nil
		}
		if err != nil {
			return b3.Address{}, 0, err
		}
		n, err = from.Read(buffer[:])
	}
	return b3.Address{}, 0, ctx.Err()
}

// withPath adds the path of the file to an error.
func withPath(op, where string, err error) error {
	return &fault.Error{Op: op, Kind: fault.KindOf(err), Detail: where, Next: fault.NextOf(err), RetryAfter: fault.RetryAfterOf(err), Err: err}
}

// progressSum adds up the progress of several transfers.
type progressSum struct {
	// set at construction
	report func(done, total int64)
	total  int64

	done atomic.Int64
}

func newTally(tell func(done, total int64), total int64) *progressSum {
	if tell == nil {
		tell = func(int64, int64) {}
	}
	return &progressSum{report: tell, total: total}
}

func (p *progressSum) add(n int64) { p.report(p.done.Add(n), p.total) }

// transfer returns the progress function of one transfer, which gets absolute
// numbers and may go back.
func (p *progressSum) transfer() func(done, _ int64) {
	last := int64(0)
	return func(done, _ int64) {
		p.add(done - last)
		last = done
	}
}

// forEachParallel calls do n times, parallel at a time, and returns when no
// call is under way any more. After the first failure it starts no new call
// and cancels the rest; it returns that failure.
func forEachParallel(ctx context.Context, parallel, n int, do func(ctx context.Context, i int) error) error {
	if parallel <= 0 {
		parallel = defaultParallel
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	var next atomic.Int64
	for range min(parallel, n) {
		all.Go(func() { //lockblock:allow all are waited for below, and end with the context
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(ctx, i); err != nil {
					cancel(err) // the first one counts
					return
				}
			}
		})
	}
	all.Wait()
	if ctx.Err() == nil {
		return nil
	}
	return fault.Wrap("client.folder", context.Cause(ctx))
}
