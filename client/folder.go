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

// atOnce is how many files of a folder are under way, if nobody says otherwise.
const atOnce = 4

// FolderOptions are for PutFolder and GetFolder. They may all be left out.
type FolderOptions struct {
	// Parallel is how many files are under way at once. Zero means 4.
	Parallel int

	// Progress is told how many bytes of all files are done, and how many there
	// are. It is called often, by several goroutines at once, and should be
	// quick.
	Progress func(done, total int64)

	// Missing is what GetFolder does about an object that the node does not
	// have, before it asks for it once more. If it is nil, that is
	// FetchAnywhere: files are then fetched from as many providers as there
	// are, several at once.
	Missing func(ctx context.Context, address b3.Address) error
}

// Folder is a folder that a node has.
type Folder struct {
	Address  b3.Address // of the manifest
	Size     int64      // of the manifest
	Manifest Manifest
	Sent     int // how many files the node did not have before
}

const putFolderOp = "client.putfolder"

// PutFolder stores all files of a folder, and a [Manifest] that says where they
// are. The node is sent only what it does not have. The manifest is stored
// last, so whoever finds it finds the files too.
//
// A folder is its files: what is empty leaves no trace, and times and owners
// are not kept, only whether a file is a program. Links and devices are refused
// by name, because they mean something on this machine only; so are names that
// other machines could not write.
func (c *Client) PutFolder(ctx context.Context, folder string, o FolderOptions) (Folder, error) {
	root, err := openSource(folder)
	if err != nil {
		return Folder{}, unreadFile(folder, err)
	}
	defer root.Close()
	entries, err := listFiles(root.FS(), folder)
	if err != nil {
		return Folder{}, err
	}
	whole := Folder{Manifest: Manifest{Entries: entries}}
	sum := newTally(o.Progress, whole.Manifest.Size())
	var sent atomic.Int64
	err = eachAtOnce(ctx, o.Parallel, len(entries), func(ctx context.Context, i int) error {
		one := localFile{root: root, where: filepath.Join(folder, filepath.FromSlash(entries[i].Path))}
		created, err := one.put(ctx, c, &entries[i], sum)
		if created {
			sent.Add(1)
		}
		return err
	})
	if err != nil {
		return Folder{}, err
	}
	whole.Sent = int(sent.Load())
	raw, err := whole.Manifest.Encode()
	if err != nil {
		return Folder{}, err
	}
	object, err := c.Put(ctx, bytes.NewReader(raw), PutOptions{Size: int64(len(raw)), Want: b3.Of(raw)})
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
// Nothing is read yet: what cannot become part of a manifest is refused before
// the first byte is sent.
func listFiles(source fs.FS, folder string) ([]Entry, error) {
	var entries []Entry
	err := fs.WalkDir(source, ".", func(path string, found fs.DirEntry, err error) error {
		where := filepath.Join(folder, filepath.FromSlash(path))
		switch {
		case err != nil:
			return unreadFile(where, err)
		case found.IsDir():
			return nil
		case !found.Type().IsRegular():
			return special(where, found.Type())
		case len(entries) == MaxEntries:
			return tooMany()
		}
		info, err := found.Info()
		if err != nil {
			return unreadFile(where, err)
		}
		entries = append(entries, Entry{Path: path, Size: info.Size(), Exec: executable(info)})
		return CheckPath(path)
	})
	slices.SortFunc(entries, byPath)
	return entries, err
}

func executable(info fs.FileInfo) bool { return info.Mode().Perm()&0o111 != 0 }

// special refuses what is neither a file nor a folder.
func special(where string, mode fs.FileMode) error {
	err := fault.New(putFolderOp, fault.Malformed, "%s is %s, and a folder is stored with files only", where, kindOfFile(mode))
	err.Next = "Take it out of the folder, or put a file in its place."
	return err
}

func kindOfFile(mode fs.FileMode) string {
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

// unreadFile says what a failure to read from our own disk means.
func unreadFile(where string, err error) error {
	if _, typed := errors.AsType[*fault.Error](err); typed {
		return err
	}
	failed := &fault.Error{Op: putFolderOp, Kind: fault.KindOf(err), Detail: where + " cannot be read", Err: bare(err),
		Next: "Look at the file and the disk, then put the folder again."}
	switch {
	case errors.Is(err, syscall.ENOTDIR):
		failed.Kind, failed.Next = fault.Malformed, "Name a folder; this is none."
	case errors.Is(err, fs.ErrNotExist):
		failed.Kind, failed.Next = fault.NotFound, "Check its name, and that nobody removes it meanwhile."
	case errors.Is(err, fs.ErrPermission):
		failed.Kind, failed.Next = fault.Forbidden, "Ask its owner for leave to read it."
	}
	return failed
}

// bare is an error without the name of the file, which the detail has.
func bare(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}

// localFile is a file that is being put.
type localFile struct {
	root  *os.Root
	where string // as errors name it
}

// put reads a file twice: once for its address, and again if the node does not
// have it. One that changes in between is found out.
func (f localFile) put(ctx context.Context, c *Client, entry *Entry, sum *tally) (created bool, err error) {
	file, err := f.open(entry.Path)
	if err != nil {
		return false, unreadFile(f.where, err)
	}
	defer file.Close()
	if err := f.measure(ctx, file, entry); err != nil {
		return false, unreadFile(f.where, err)
	}
	have, err := c.Stat(ctx, entry.B3)
	if err == nil && have.Size == entry.Size {
		sum.add(entry.Size)
		return false, nil
	}
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return false, concerning(putFolderOp, f.where, err)
	}
	part := sum.part()
	object, err := c.Put(ctx, file, PutOptions{Size: entry.Size, Want: entry.B3, Progress: part})
	if err != nil {
		return false, concerning(putFolderOp, f.where, err)
	}
	part(entry.Size, entry.Size)
	return object.Created, nil
}

// open opens what the walk has seen: a file, not what somebody has put in its
// place since. A pipe would keep us waiting, hence O_NONBLOCK.
func (f localFile) open(path string) (*os.File, error) {
	named, err := f.root.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !named.Mode().IsRegular() {
		return nil, special(f.where, named.Mode())
	}
	file, err := f.root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if opened, err := file.Stat(); err != nil || !os.SameFile(opened, named) {
		_ = file.Close() // nothing was written to it
		return nil, cmp.Or(err, special(f.where, fs.ModeSymlink))
	}
	return file, nil
}

// measure works out the address, the size and the type of a file, and goes back
// to its beginning.
func (f localFile) measure(ctx context.Context, file *os.File, entry *Entry) error {
	begin := make([]byte, sniffed)
	n, err := io.ReadFull(file, begin)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return err
	}
	entry.Type = contentType(entry.Path, begin[:n])
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	entry.B3, entry.Size, err = addressOf(ctx, file)
	if err != nil {
		return err
	}
	_, err = file.Seek(0, io.SeekStart)
	return err
}

// addressOf reads to the end, or until nobody waits for the answer.
func addressOf(ctx context.Context, from io.Reader) (b3.Address, int64, error) {
	var hash b3.Hasher
	buffer := make([]byte, 256<<10)
	for ctx.Err() == nil {
		n, err := from.Read(buffer)
		_, _ = hash.Write(buffer[:n]) // it never fails
		if err == io.EOF {
			return hash.Sum(), hash.N(), nil
		}
		if err != nil {
			return b3.Address{}, 0, err
		}
	}
	return b3.Address{}, 0, ctx.Err()
}

// concerning says which file an error is about.
func concerning(op, where string, err error) error {
	return &fault.Error{Op: op, Kind: fault.KindOf(err), Detail: where, Next: fault.NextOf(err), RetryAfter: fault.RetryAfterOf(err), Err: err}
}

// tally adds up what several transfers have done.
type tally struct {
	// set at construction
	tell  func(done, total int64)
	total int64

	done atomic.Int64
}

func newTally(tell func(done, total int64), total int64) *tally {
	if tell == nil {
		tell = func(int64, int64) {}
	}
	return &tally{tell: tell, total: total}
}

func (t *tally) add(n int64) { t.tell(t.done.Add(n), t.total) }

// part is the progress of one transfer, which is told in absolute numbers and
// may go back.
func (t *tally) part() func(done, _ int64) {
	last := int64(0)
	return func(done, _ int64) {
		t.add(done - last)
		last = done
	}
}

// eachAtOnce does n things, a few at a time, and returns when none is under way
// any more. After the first failure nothing new is begun, and the rest is told
// to stop; that failure is returned.
func eachAtOnce(ctx context.Context, parallel, n int, do func(ctx context.Context, i int) error) error {
	if parallel <= 0 {
		parallel = atOnce
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
