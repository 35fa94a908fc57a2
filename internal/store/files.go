package store

import (
	"cmp"
	"context"
	"io"
	"slices"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
)

// Files is the files of a folder, one after the other in the order of its
// manifest, as if they were one object. So many small files are one exchange:
// whoever has the manifest knows where each begins and what its address is. It
// is safe for concurrent use.
type Files struct {
	// set at construction
	ctx     context.Context // of all reads, which is why it is kept
	store   Opener
	entries []client.Entry
	ends    []int64 // where the file ends
}

// OpenFiles opens the files of a manifest. It is NotFound if the manifest is not
// stored, and Malformed if the object is none. Files that are not stored are
// NotFound when they are read. The context is that of all reads.
func OpenFiles(ctx context.Context, s Opener, manifest b3.Address) (*Files, error) {
	const op = "store.files"
	handle, err := s.Open(ctx, manifest)
	if err != nil {
		return nil, err
	}
	defer func() { _ = handle.Close() }() // it was only read
	if handle.Size() > client.MaxManifest {
		return nil, &fault.Error{Op: op, Kind: fault.Malformed, Detail: "it is too large for a manifest", Next: "Fetch it as a file."}
	}
	raw := make([]byte, handle.Size())
	if n, err := handle.ReadAt(raw, 0); n < len(raw) {
		return nil, fault.Wrap(op, err)
	}
	decoded, err := client.DecodeManifest(raw)
	if err != nil {
		return nil, fault.WrapKind(op, fault.Malformed, err)
	}
	f := &Files{ctx: ctx, store: s, entries: decoded.Entries, ends: make([]int64, len(decoded.Entries))}
	end := int64(0)
	for i, one := range f.entries {
		end += one.Size
		f.ends[i] = end
	}
	return f, nil
}

// Size returns how many bytes all files have.
func (f *Files) Size() int64 {
	if len(f.ends) == 0 {
		return 0
	}
	return f.ends[len(f.ends)-1]
}

// Len returns how many files there are.
func (f *Files) Len() int { return len(f.entries) }

// Entry returns what the manifest says of a file.
func (f *Files) Entry(i int) client.Entry { return f.entries[i] }

// Begin and End return where a file begins, and where it ends.
func (f *Files) Begin(i int) int64 { return f.ends[i] - f.entries[i].Size }
func (f *Files) End(i int) int64   { return f.ends[i] }

// Find returns the file that has the byte at an offset, which must be less than
// Size.
func (f *Files) Find(off int64) int {
	i, _ := slices.BinarySearchFunc(f.ends, off, func(end, off int64) int { return cmp.Or(cmp.Compare(end, off), -1) })
	return i
}

// openFile opens one of the files. A manifest may say of it what is not so.
func (f *Files) openFile(i int) (Handle, error) {
	handle, err := f.store.Open(f.ctx, f.entries[i].B3)
	if err != nil {
		return nil, err
	}
	if handle.Size() != f.entries[i].Size {
		_ = handle.Close() // it was not read
		return nil, fault.New("store.files", fault.Malformed, "the manifest says that %s has %d bytes, but it has %d", f.entries[i].B3, f.entries[i].Size, handle.Size())
	}
	return handle, nil
}

// ReadAt reads as io.ReaderAt requires.
func (f *Files) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		if off+int64(n) >= f.Size() {
			return n, io.EOF
		}
		i := f.Find(off + int64(n))
		handle, err := f.openFile(i)
		if err != nil {
			return n, err
		}
		from := off + int64(n) - f.Begin(i)
		part := p[n:min(int64(len(p)), int64(n)+f.entries[i].Size-from)]
		got, err := handle.ReadAt(part, from)
		_ = handle.Close() // it was only read
		if n += got; got < len(part) {
			return n, err
		}
	}
	return n, nil
}

// WriteRange writes a part of the files.
func (f *Files) WriteRange(w io.Writer, off, n int64) error {
	for end := off + n; off < end; {
		i := f.Find(off)
		handle, err := f.openFile(i)
		if err != nil {
			return err
		}
		written, err := handle.WriteRange(w, off-f.Begin(i), min(end, f.ends[i])-off)
		_ = handle.Close() // it was only read
		if off += written; err != nil {
			return err
		}
	}
	return nil
}

// Close does nothing: each file is open only while it is read.
func (f *Files) Close() error { return nil }
