package client

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"micronode/b3"
	"micronode/fault"
)

// upload is the content of a Put, for all its tries.
type upload struct {
	src      io.Reader
	size     int64 // -1 if unknown
	want     b3.Address
	progress func(done, total int64)

	seeker io.Seeker // nil if the source cannot be read twice
	start  int64     // offset of the source before the first try
	from   int64     // how many bytes of it the node has; the hash of them is in the body
}

const putOp = "client.put"

func newUpload(src io.Reader, o PutOptions) (upload, error) {
	if o.Size < 0 {
		return upload{}, fault.New(putOp, fault.Malformed, "a size of %d", o.Size)
	}
	u := upload{src: src, size: o.Size, want: o.Want, progress: o.Progress}
	size := u.measure()
	if u.size == 0 {
		u.size = size
	}
	return u, nil
}

// measure determines the size of the source, and whether it can be read again.
// Zero counts as unknown: some files that the system generates as they are
// read have size zero.
func (u *upload) measure() int64 {
	size := int64(0)
	switch src := u.src.(type) {
	case *bytes.Buffer:
		size = int64(src.Len())
	case io.Seeker: // a pipe implements it too, and fails to seek
		start, err := src.Seek(0, io.SeekCurrent)
		if err != nil {
			break
		}
		end, err := src.Seek(0, io.SeekEnd)
		if _, back := src.Seek(start, io.SeekStart); err != nil || back != nil {
			break
		}
		u.seeker, u.start, size = src, start, end-start
	}
	if size <= 0 {
		return -1
	}
	return size
}

// rewind prepares the source for another try.
func (u *upload) rewind() error {
	if u.seeker == nil {
		return nil // nothing of it was read
	}
	_, err := u.seeker.Seek(u.start, io.SeekStart)
	return sourceReadError(err)
}

// sourceReadError is the failure of a source. Only the caller can retry it.
func sourceReadError(err error) error {
	if err == nil {
		return nil
	}
	return &fault.Error{Op: putOp, Kind: fault.KindOf(err), Detail: "the source cannot be read", Err: err,
		Next: "Nothing was stored. Check the source, then put it again."}
}

// errTryStopped ends the reading of a try that is over.
var errTryStopped = errors.New("client: this attempt is over")

// uploadBody is the body of one try. The transport reads it on a goroutine of
// its own, and may still do so when it has reported that the try failed.
type uploadBody struct {
	// set at construction
	upload
	watchdog    *watchdog
	sourceToken chan struct{} // holds one token; only its holder may touch the source

	stopped  atomic.Bool           // the source must not be touched any more
	started  atomic.Bool           // bytes were read from the source
	complete atomic.Bool           // everything was read and is right: hash is final
	err      atomic.Pointer[error] // why it is not

	hash b3.Hasher // owned by the holder of sourceToken
}

func newUploadBody(u upload) *uploadBody {
	s := &uploadBody{upload: u, sourceToken: make(chan struct{}, 1)}
	s.sourceToken <- struct{}{}
	return s
}

// Read reads from the source, hashes, and holds the last bytes back until it
// is sure that they are the last and that everything was right. So wrong
// content reaches the node only in part, and is not stored.
func (u *uploadBody) Read(p []byte) (int, error) {
	<-u.sourceToken
	defer func() { u.sourceToken <- struct{}{} }()
	switch {
	case u.stopped.Load():
		return 0, errTryStopped
	case u.complete.Load():
		return 0, io.EOF
	}
	u.watchdog.pause()
	n, err := u.readSource(p)
	u.watchdog.start()
	switch {
	case err == nil:
		return n, nil
	case err == io.EOF:
		u.complete.Store(true)
		return n, io.EOF
	default:
		u.err.Store(&err)
		return 0, err
	}
}

// Close is called by the transport. The source is the caller's to close.
func (u *uploadBody) Close() error { return nil }

func (u *uploadBody) readSource(p []byte) (int, error) {
	if u.size >= 0 {
		p = p[:min(int64(len(p)), u.size-u.hash.N())]
	}
	n, err := u.src.Read(p)
	if n > 0 {
		u.started.Store(true)
		_, _ = u.hash.Write(p[:n]) // it never fails
		u.reportProgress()
	}
	if err == nil && u.hash.N() == u.size {
		err = u.expectEOF()
	}
	if err == io.EOF {
		return n, u.checkEnd()
	}
	if _, ours := errors.AsType[*fault.Error](err); ours {
		return n, err
	}
	return n, sourceReadError(err)
}

func (u *uploadBody) reportProgress() {
	if u.progress != nil && !u.stopped.Load() {
		u.progress(u.hash.N(), u.size)
	}
}

// expectEOF checks that the source ends where it should.
func (u *uploadBody) expectEOF() error {
	var more [1]byte
	_, err := io.ReadFull(u.src, more[:])
	if err == nil {
		return u.sourceError("the source has more than the declared %d bytes", u.size)
	}
	return err
}

// checkEnd is io.EOF if size and address are as the caller said.
func (u *uploadBody) checkEnd() error {
	if done := u.hash.N(); u.size >= 0 && done != u.size {
		return u.sourceError("the source ended after %d of %d bytes", done, u.size)
	}
	if u.want.IsZero() {
		return io.EOF
	}
	if got := u.hash.Sum(); got != u.want {
		return &fault.Error{Op: putOp, Kind: fault.IntegrityFail, Detail: "the source does not have the address in Want",
			Next: "Nothing was stored. Check the source, or leave out Want.", Err: &b3.Mismatch{Want: u.want, Got: got}}
	}
	return io.EOF
}

func (u *uploadBody) sourceError(format string, args ...any) error {
	return &fault.Error{Op: putOp, Kind: fault.Malformed, Detail: fmt.Sprintf(format, args...),
		Next: "Nothing was stored. Give the right Size, or none."}
}

// stop keeps the transport from touching the source any more, and reports
// whether the source is at rest. It waits for one that can be read twice: that
// is a file or memory, and does not block for long. Any other may be in the
// middle of a long Read, and the refusal of a node should not wait for a
// keyboard.
func (u *uploadBody) stop() (atRest bool) {
	u.stopped.Store(true)
	if u.seeker != nil {
		<-u.sourceToken
	} else {
		select {
		case <-u.sourceToken:
		default:
			return false
		}
	}
	u.sourceToken <- struct{}{}
	return true
}
