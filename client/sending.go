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

// upload is what a Put is to send, however many tries it takes.
type upload struct {
	src      io.Reader
	size     int64 // -1 if nobody knows
	want     b3.Address
	progress func(done, total int64)

	seeker io.Seeker // nil if the source cannot be read twice
	start  int64     // where the source stood
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

// measure finds out how much the source holds, and whether it can be read
// again. Zero counts as unknown: some files that the system makes up as they
// are read say that they are empty.
func (u *upload) measure() int64 {
	size := int64(0)
	switch src := u.src.(type) {
	case *bytes.Buffer:
		size = int64(src.Len())
	case io.Seeker: // a pipe is one too, until it is asked
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
		return nil // nothing of it was used
	}
	_, err := u.seeker.Seek(u.start, io.SeekStart)
	return unreadable(err)
}

// unreadable is the failure of a source. Trying again is the caller's affair.
func unreadable(err error) error {
	if err == nil {
		return nil
	}
	return &fault.Error{Op: putOp, Kind: fault.KindOf(err), Detail: "the source cannot be read", Err: err,
		Next: "Nothing was stored. Look at the source, then put it again."}
}

// errOver ends the reading of a try that nobody waits for any more.
var errOver = errors.New("client: this try is over")

// sending is the body of one try. The transport reads it on a goroutine of its
// own, and may still do so when it has reported that the try failed.
type sending struct {
	// set at construction
	upload
	dog  *watchdog
	turn chan struct{} // holds one token; who has it may touch the source

	over    atomic.Bool           // the source is not to be touched any more
	touched atomic.Bool           // bytes were taken from the source
	whole   atomic.Bool           // everything was read and is right: hash is final
	failed  atomic.Pointer[error] // why it is not

	hash b3.Hasher // owned by who has the turn
}

func newSending(u upload) *sending {
	s := &sending{upload: u, turn: make(chan struct{}, 1)}
	s.turn <- struct{}{}
	return s
}

// Read takes from the source, hashes, and holds the last bytes back until it is
// sure that they are the last and that everything was right. So what is wrong
// reaches the node only in part, and is not stored.
func (s *sending) Read(p []byte) (int, error) {
	<-s.turn
	defer func() { s.turn <- struct{}{} }()
	switch {
	case s.over.Load():
		return 0, errOver
	case s.whole.Load():
		return 0, io.EOF
	}
	s.dog.ourTurn()
	n, err := s.take(p)
	s.dog.nodesTurn()
	switch {
	case err == nil:
		return n, nil
	case err == io.EOF:
		s.whole.Store(true)
		return n, io.EOF
	default:
		s.failed.Store(&err)
		return 0, err
	}
}

// Close is called by the transport. The source is the caller's to close.
func (s *sending) Close() error { return nil }

func (s *sending) take(p []byte) (int, error) {
	if s.size >= 0 {
		p = p[:min(int64(len(p)), s.size-s.hash.N())]
	}
	n, err := s.src.Read(p)
	if n > 0 {
		s.touched.Store(true)
		_, _ = s.hash.Write(p[:n]) // it never fails
		s.tell()
	}
	if err == nil && s.hash.N() == s.size {
		err = s.probe()
	}
	if err == io.EOF {
		return n, s.verdict()
	}
	if _, ours := errors.AsType[*fault.Error](err); ours {
		return n, err
	}
	return n, unreadable(err)
}

func (s *sending) tell() {
	if s.progress != nil && !s.over.Load() {
		s.progress(s.hash.N(), s.size)
	}
}

// probe makes sure that the source ends where it should.
func (s *sending) probe() error {
	var more [1]byte
	_, err := io.ReadFull(s.src, more[:])
	if err == nil {
		return s.mistake("the source has more than the %d bytes that were promised", s.size)
	}
	return err
}

// verdict is io.EOF if everything is as the caller said.
func (s *sending) verdict() error {
	if done := s.hash.N(); s.size >= 0 && done != s.size {
		return s.mistake("the source ended after %d of %d bytes", done, s.size)
	}
	if s.want.IsZero() {
		return io.EOF
	}
	if got := s.hash.Sum(); got != s.want {
		return &fault.Error{Op: putOp, Kind: fault.IntegrityFail, Detail: "the source is not what was wanted",
			Next: "Nothing was stored. Look at the source, or leave Want out.", Err: &b3.Mismatch{Want: s.want, Got: got}}
	}
	return io.EOF
}

func (s *sending) mistake(format string, args ...any) error {
	return &fault.Error{Op: putOp, Kind: fault.Malformed, Detail: fmt.Sprintf(format, args...),
		Next: "Nothing was stored. Give the right Size, or none."}
}

// stop keeps the transport from touching the source any more, and reports
// whether the source is at rest. One that can be read twice is waited for: it
// is a file or memory, and does not keep anybody waiting. Any other may be in
// the middle of a Read that lasts, and the caller should not have to wait for
// the keyboard to be told that the node refused.
func (s *sending) stop() (atRest bool) {
	s.over.Store(true)
	if s.seeker != nil {
		<-s.turn
	} else {
		select {
		case <-s.turn:
		default:
			return false
		}
	}
	s.turn <- struct{}{}
	return true
}
