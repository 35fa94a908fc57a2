package store

import (
	"errors"
	"io"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/disk"
)

const (
	// verifyWindow is how much of a range is verified ahead of what is sent. A
	// range up to this size is verified whole before its first byte is sent.
	verifyWindow = 1 << 20

	// maxVerifiedBits is how many bits an open file may take to remember what
	// was verified: 8 KiB, enough for every group of 1 GiB. In larger files a
	// bit stands for several groups.
	maxVerifiedBits = 64 << 10

	// verifiedTTL is for how long verified bytes are trusted.
	verifiedTTL = time.Minute

	// minSendfile is the shortest range that is worth the system calls of a
	// copy by the kernel.
	minSendfile = 128 << 10
)

// diskFile is the open file of an object. All handles of the object share it,
// and what was verified of it.
type diskFile struct {
	// set at construction
	*os.File
	address b3.Address
	size    int64

	refs int // guarded by the mutex of the object's shard: readers

	verified atomic.Pointer[verifiedGroups] // nil before anything was verified

	// A copy that is made by the kernel moves the offset of the file, so it
	// needs an open file of its own. One is kept for reuse.
	sendFile atomic.Pointer[os.File]
}

// close closes it. The error is of no use: nothing was written.
func (f *diskFile) close() {
	_ = f.File.Close()
	if sendFile := f.sendFile.Swap(nil); sendFile != nil {
		_ = sendFile.Close()
	}
}

// isSmall reports whether an object is read and hashed whole, whatever part of
// it is requested. Its file has no outboard.
func isSmall(size int64) bool { return size <= ioBufferSize }

// What was verified is not hashed again for a minute, if the file stays open
// and does not change. A change is detected by the length and the times of the
// file. So there is a window: bytes that rot on the disk after they were
// verified, and that the kernel has to read again, and a change within the same
// tick of the kernel's clock by a process with write access to our files, can
// go unnoticed that long.

// readSmall reads all of a small object into p, and verifies it.
func (f *diskFile) readSmall(p []byte) error {
	now, err := f.currentStamp()
	if err != nil {
		return err
	}
	n, err := f.ReadAt(p[:f.size], 0)
	if int64(n) < f.size && err != io.EOF {
		return err
	}
	if verified := f.verified.Load(); int64(n) == f.size && verified.isValidFor(now) {
		return nil
	}
	if got := b3.Of(p[:n]); got != f.address {
		return &b3.Mismatch{Want: f.address, Got: got}
	}
	f.verified.Store(&verifiedGroups{stamp: now, validUntil: time.Now().Add(verifiedTTL)})
	return nil
}

// verify verifies a part of a larger object.
func (f *diskFile) verify(off, n int64) error {
	now, err := f.currentStamp()
	if err != nil {
		return err
	}
	p := f.verified.Load()
	if !p.isValidFor(now) {
		if p, err = f.newVerifiedGroups(now); err != nil {
			return err
		}
		f.verified.Store(p)
	}
	return p.verify(off, n)
}

// currentStamp is the metadata by which a change of the file is detected.
func (f *diskFile) currentStamp() (disk.Stamp, error) {
	info, err := f.Stat()
	if err != nil {
		return disk.Stamp{}, err
	}
	if info.Size() != fileLength(f.size) {
		return disk.Stamp{}, &b3.Mismatch{Want: f.address, Part: "a file of " + strconv.FormatInt(info.Size(), 10) + " bytes"}
	}
	return disk.StampOf(info), nil
}

// verifiedGroups remembers which parts of a file were verified. It is safe for
// concurrent use. A small object is verified as a whole, and the tree is not
// needed.
type verifiedGroups struct {
	// set at construction
	stamp      disk.Stamp
	validUntil time.Time
	tree       *b3.Verified
	size       int64
	unitSize   int64 // what a bit stands for: a whole number of groups

	bits []atomic.Uint64
}

// isValidFor reports whether it is still valid for the file as it is now.
func (v *verifiedGroups) isValidFor(now disk.Stamp) bool {
	return v != nil && v.stamp == now && time.Now().Before(v.validUntil)
}

// newVerifiedGroups verifies the size and nothing else.
func (f *diskFile) newVerifiedGroups(now disk.Stamp) (*verifiedGroups, error) {
	tree, err := b3.Open(f.address, f.size, io.NewSectionReader(f, f.size, b3.OutboardSize(f.size)), f)
	if err != nil {
		return nil, err
	}
	unit := verifyUnitSize(f.size)
	return &verifiedGroups{
		stamp: now, validUntil: time.Now().Add(verifiedTTL),
		tree: tree, size: f.size, unitSize: unit, bits: make([]atomic.Uint64, (f.size-1)/unit/64+1),
	}, nil
}

// verifyUnitSize is what a bit stands for, so that there are not too many.
func verifyUnitSize(size int64) int64 {
	unit := int64(b3.GroupSize)
	for (size-1)/unit >= maxVerifiedBits {
		unit *= 2
	}
	return unit
}

func (v *verifiedGroups) isVerified(unit int64) bool {
	return v.bits[unit/64].Load()&(1<<(unit%64)) != 0
}

// verify reads what is not verified yet, in as few reads as it can.
func (v *verifiedGroups) verify(off, n int64) error {
	for unit, end := off/v.unitSize, (off+n+v.unitSize-1)/v.unitSize; unit < end; {
		if v.isVerified(unit) {
			unit++
			continue
		}
		first := unit
		for unit < end && !v.isVerified(unit) {
			unit++
		}
		if err := v.verifyUnits(first, unit); err != nil {
			return err
		}
	}
	return nil
}

// verifyUnits verifies a range of units, and remembers it.
func (v *verifiedGroups) verifyUnits(first, end int64) error {
	from := first * v.unitSize
	part, err := v.tree.Range(from, min(end*v.unitSize, v.size)-from)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, part); err != nil {
		return err
	}
	for unit := first; unit < end; unit++ {
		v.bits[unit/64].Or(1 << (unit % 64))
	}
	return nil
}

// ioBuffer is a buffer for reading and writing bodies. After them there is
// space for the outboard of an object that is not much longer.
type ioBuffer struct {
	data [ioBufferSize + 2<<10]byte
	body [1][]byte // the slices that are lent out of it
}

const ioBufferSize = 64 << 10

var ioBuffers = sync.Pool{New: func() any { return new(ioBuffer) }}

// Close returns it to the pool.
func (i *ioBuffer) Close() error {
	i.body[0] = nil
	ioBuffers.Put(i)
	return nil
}

// send writes a verified part to w.
func (f *diskFile) send(w io.Writer, off, n int64) (int64, error) {
	if to, ok := w.(io.ReaderFrom); ok && n >= minSendfile {
		if sendFile := f.openSendFile(off); sendFile != nil {
			defer f.releaseSendFile(sendFile)
			return sendFrom(to, sendFile, n)
		}
	}
	buffer := ioBuffers.Get().(*ioBuffer)
	defer buffer.Close()
	var written int64
	for written < n {
		p := buffer.data[:min(n-written, ioBufferSize)]
		if _, err := f.ReadAt(p, off+written); err != nil {
			return written, unexpectedEOF(err)
		}
		m, err := write(w, p)
		written += m
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// sendFrom lets the writer read n bytes from the file's offset.
func sendFrom(w io.ReaderFrom, file *os.File, n int64) (int64, error) {
	written, err := w.ReadFrom(&io.LimitedReader{R: file, N: n})
	if err == nil && written < n {
		err = io.ErrUnexpectedEOF
	}
	return written, err
}

// write writes all of p, or returns why not.
func write(w io.Writer, p []byte) (int64, error) {
	n, err := w.Write(p)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return int64(n), err
}

// unexpectedEOF is the error for a file that ends early: its length was right a
// moment ago.
func unexpectedEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// openSendFile returns an open file of its own with its offset at off. By its
// name it could no longer be found if the object was deleted; by its descriptor
// it can. Without /proc there is none, and the caller copies by itself.
func (f *diskFile) openSendFile(off int64) *os.File {
	sendFile := f.sendFile.Swap(nil)
	if sendFile == nil {
		var err error
		if sendFile, err = openFile("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), os.O_RDONLY); err != nil {
			return nil
		}
	}
	if _, err := sendFile.Seek(off, io.SeekStart); err != nil {
		_ = sendFile.Close()
		return nil
	}
	return sendFile
}

// releaseSendFile keeps the file for reuse, if none is kept.
func (f *diskFile) releaseSendFile(sendFile *os.File) {
	if !f.sendFile.CompareAndSwap(nil, sendFile) {
		_ = sendFile.Close()
	}
}

// isCorrupt reports whether a read failed because of the content of the disk.
// An unreadable sector is as bad as one with other bytes in it.
func isCorrupt(err error) bool { return errors.Is(err, b3.ErrMismatch) || disk.IsDamage(err) }

// diskReadFault classifies the error of a read from disk.
func diskReadFault(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrClosed):
		return fault.Wrap(op, errHandleClosed)
	case disk.IsDamage(err):
		return &fault.Error{Op: op, Kind: fault.IntegrityFail, Err: err, Detail: "the disk cannot read the object",
			Next: "Put the object again, or fetch it from another node. Check dmesg and the health of the disk."}
	default:
		return fault.Wrap(op, err)
	}
}
