package store

import (
	"errors"
	"io"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"micronode/b3"
	"micronode/fault"
)

const (
	// window is how much of a range is verified ahead of what is sent. A range
	// that is not longer is verified whole before its first byte goes out.
	window = 1 << 20

	// mostBits is how many bits an open file may take to remember what was
	// verified: 8 KiB, enough for every group of 1 GiB. In larger files a bit
	// stands for several groups.
	mostBits = 64 << 10

	// trusted is for how long bytes that were found right are taken to be so.
	trusted = time.Minute

	// leastByKernel is the shortest piece that is worth the system calls that
	// it takes to let the kernel copy it.
	leastByKernel = 128 << 10
)

// diskFile is an object's file that is open. All who have the object open
// share it, and what is known of it.
type diskFile struct {
	// set at construction
	*os.File
	address b3.Address
	size    int64

	refs int // guarded by the mutex of the object's shard: who reads

	proof atomic.Pointer[proof] // nil before something was found right

	// A copy that is made by the kernel moves the offset of the file, so it
	// needs an open file of its own. One is kept for the next who needs it.
	cursor atomic.Pointer[os.File]
}

// close closes it. What it says is of no use: nothing was written.
func (f *diskFile) close() {
	_ = f.File.Close()
	if cursor := f.cursor.Swap(nil); cursor != nil {
		_ = cursor.Close()
	}
}

// isSmall tells whether an object is read and hashed whole, whatever part of it
// is asked for. Its file has no outboard.
func isSmall(size int64) bool { return size <= pieceSize }

// What was found right is not hashed again for a minute, if the file stays open
// and does not change. A change is seen by the length and the times of the file.
// So there is a window: bytes that rot on the disk after they were verified, and
// that the kernel has to read again, and a change within the same tick of the
// kernel's clock by somebody who may write to our files, can pass for as long.

// readSmall reads all of a small object into p, and verifies it.
func (f *diskFile) readSmall(p []byte) error {
	now, err := f.stampNow()
	if err != nil {
		return err
	}
	n, err := f.ReadAt(p[:f.size], 0)
	if int64(n) < f.size && err != io.EOF {
		return err
	}
	if known := f.proof.Load(); int64(n) == f.size && known.holds(now) {
		return nil
	}
	if got := b3.Of(p[:n]); got != f.address {
		return &b3.Mismatch{Want: f.address, Got: got}
	}
	f.proof.Store(&proof{stamp: now, until: time.Now().Add(trusted)})
	return nil
}

// verify makes sure that a part of a larger object is right.
func (f *diskFile) verify(off, n int64) error {
	now, err := f.stampNow()
	if err != nil {
		return err
	}
	p := f.proof.Load()
	if !p.holds(now) {
		if p, err = f.newProof(now); err != nil {
			return err
		}
		f.proof.Store(p)
	}
	return p.verify(off, n)
}

// stamp is by what a change of a file is seen.
type stamp struct {
	length            int64
	modified, changed syscall.Timespec
}

func (f *diskFile) stampNow() (stamp, error) {
	info, err := f.Stat()
	if err != nil {
		return stamp{}, err
	}
	now := stamp{length: info.Size()}
	if now.length != lengthOf(f.size) {
		return stamp{}, &b3.Mismatch{Want: f.address, Part: "a file of " + strconv.FormatInt(now.length, 10) + " bytes"}
	}
	if detail, ok := info.Sys().(*syscall.Stat_t); ok {
		now.modified, now.changed = detail.Mtim, detail.Ctim
	}
	return now, nil
}

// proof remembers which parts of a file were found right. Many use it at once.
// Of a small object it is all or nothing, and the tree is not needed.
type proof struct {
	// set at construction
	stamp stamp
	until time.Time
	tree  *b3.Verified
	size  int64
	unit  int64 // what a bit stands for: a whole number of groups

	bits []atomic.Uint64
}

// holds tells whether a proof is one of the file as it is now.
func (p *proof) holds(now stamp) bool {
	return p != nil && p.stamp == now && time.Now().Before(p.until)
}

// newProof proves the size and knows nothing of the rest.
func (f *diskFile) newProof(now stamp) (*proof, error) {
	tree, err := b3.Open(f.address, f.size, io.NewSectionReader(f, f.size, b3.OutboardSize(f.size)), f)
	if err != nil {
		return nil, err
	}
	unit := unitOf(f.size)
	return &proof{
		stamp: now, until: time.Now().Add(trusted),
		tree: tree, size: f.size, unit: unit, bits: make([]atomic.Uint64, (f.size-1)/unit/64+1),
	}, nil
}

// unitOf is what a bit stands for, so that there are not too many.
func unitOf(size int64) int64 {
	unit := int64(b3.GroupSize)
	for (size-1)/unit >= mostBits {
		unit *= 2
	}
	return unit
}

func (p *proof) known(unit int64) bool {
	return p.bits[unit/64].Load()&(1<<(unit%64)) != 0
}

// verify reads what is not yet known to be right, as few times as it can.
func (p *proof) verify(off, n int64) error {
	for unit, end := off/p.unit, (off+n+p.unit-1)/p.unit; unit < end; {
		if p.known(unit) {
			unit++
			continue
		}
		first := unit
		for unit < end && !p.known(unit) {
			unit++
		}
		if err := p.check(first, unit); err != nil {
			return err
		}
	}
	return nil
}

// check verifies a row of units, and remembers it.
func (p *proof) check(first, end int64) error {
	from := first * p.unit
	part, err := p.tree.Range(from, min(end*p.unit, p.size)-from)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, part); err != nil {
		return err
	}
	for unit := first; unit < end; unit++ {
		p.bits[unit/64].Or(1 << (unit % 64))
	}
	return nil
}

// piece is a buffer for bytes on their way in or out. Behind them there is room
// for the outboard of an object that is not much longer.
type piece struct {
	room [pieceSize + 2<<10]byte
	body [1][]byte // what is given out of it
}

const pieceSize = 64 << 10

var pieces = sync.Pool{New: func() any { return new(piece) }}

// Close gives it back.
func (p *piece) Close() error {
	p.body[0] = nil
	pieces.Put(p)
	return nil
}

// send writes a part that was verified to w.
func (f *diskFile) send(w io.Writer, off, n int64) (int64, error) {
	if taker, able := w.(io.ReaderFrom); able && n >= leastByKernel {
		if cursor := f.takeCursor(off); cursor != nil {
			defer f.giveCursor(cursor)
			return sendBy(taker, cursor, n)
		}
	}
	buffer := pieces.Get().(*piece)
	defer buffer.Close()
	var written int64
	for written < n {
		p := buffer.room[:min(n-written, pieceSize)]
		if _, err := f.ReadAt(p, off+written); err != nil {
			return written, cutShort(err)
		}
		m, err := write(w, p)
		written += m
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// sendBy lets the writer take n bytes from where the cursor stands.
func sendBy(w io.ReaderFrom, cursor *os.File, n int64) (int64, error) {
	written, err := w.ReadFrom(&io.LimitedReader{R: cursor, N: n})
	if err == nil && written < n {
		err = io.ErrUnexpectedEOF
	}
	return written, err
}

// write writes all of p, or says why not.
func write(w io.Writer, p []byte) (int64, error) {
	n, err := w.Write(p)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return int64(n), err
}

// cutShort is for a file that ends before it should: its length was right a
// moment ago.
func cutShort(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// takeCursor is an open file of its own that stands at off. By its name it
// could no longer be found if the object was deleted; by its descriptor it can.
// Without /proc there is none, and who asked copies by themselves.
func (f *diskFile) takeCursor(off int64) *os.File {
	cursor := f.cursor.Swap(nil)
	if cursor == nil {
		var err error
		if cursor, err = openFile("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), unix.O_RDONLY); err != nil {
			return nil
		}
	}
	if _, err := cursor.Seek(off, io.SeekStart); err != nil {
		_ = cursor.Close()
		return nil
	}
	return cursor
}

// giveCursor keeps the cursor for the next, if there is none.
func (f *diskFile) giveCursor(cursor *os.File) {
	if !f.cursor.CompareAndSwap(nil, cursor) {
		_ = cursor.Close()
	}
}

// isCorrupt tells whether a read failed because of what is, or is not, on the
// disk. A sector that cannot be read is as bad as one with other bytes in it.
func isCorrupt(err error) bool { return errors.Is(err, b3.ErrMismatch) || isDamage(err) }

// diskReadFault classifies the error of a read from disk.
func diskReadFault(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrClosed):
		return fault.Wrap(op, errHandleClosed)
	case isDamage(err):
		return &fault.Error{Op: op, Kind: fault.IntegrityFail, Err: err, Detail: "the disk does not give the bytes back",
			Next: "Put the object again, or fetch it from elsewhere. Look at dmesg and at the health of the disk."}
	default:
		return fault.Wrap(op, err)
	}
}
