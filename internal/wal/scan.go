package wal

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
)

// readBuffer is how much of a file is read at a time. It is a multiple of the
// alignment.
const readBuffer = 256 << 10

// Scanner reads the frames of a file, in order. It stops at the first that is
// not valid: that is the end of the log, or a torn end, or damage. A torn end is
// a batch that was never acknowledged, because its sync did not return; damage
// is anything else that is not valid.
type Scanner struct {
	// set at construction
	file     io.ReaderAt
	encoding encoding
	size     int64 // what is behind it is not read

	from *bufio.Reader
	body []byte
	end  int64

	ackedBatch  uint64 // the later batch that Acknowledged has found
	ackedOffset int64  // where
}

// Scan reads the frames of a file from an offset on, up to another.
func (f *File) Scan(from, to int64) *Scanner {
	s := &Scanner{file: f, encoding: f.encoding, size: to, end: from}
	s.from = bufio.NewReaderSize(nil, int(min(readBuffer, max(to-from, 0))))
	s.seek(from)
	return s
}

// End is the end of the last valid frame: where the next one is expected.
func (s *Scanner) End() int64 { return s.end }

func (s *Scanner) seek(offset int64) {
	s.from.Reset(io.NewSectionReader(s.file, offset, max(s.size-offset, 0)))
}

// Next reads the next frame, with its body, which is valid until the next call.
// It reports whether there is a valid one that expected accepts; if not, the
// scanner stays where it is. It allocates in proportion to the frames that
// exist, never to what a length says.
func (s *Scanner) Next(expected func(Frame) bool) (Frame, []byte, bool, error) {
	var header [4 + 4*maxParts + 24]byte
	h := header[:s.encoding.headerSize()]
	if _, err := io.ReadFull(s.from, h); isEOF(err) {
		return Frame{}, nil, false, nil
	} else if err != nil {
		return Frame{}, nil, false, err
	}
	f, ok := s.encoding.parseFrame(h, s.end)
	if !ok || int64(f.Size()) > s.size-s.end || !expected(f) {
		return Frame{}, nil, false, nil
	}
	s.body = resize(s.body, Align(f.Len()))
	if _, err := io.ReadFull(s.from, s.body); isEOF(err) {
		return Frame{}, nil, false, nil
	} else if err != nil {
		return Frame{}, nil, false, err
	}
	if !f.isBody(s.body) {
		return Frame{}, nil, false, nil
	}
	s.end += int64(f.Size())
	return f, s.body[:f.Len():f.Len()], true, nil
}

// Acknowledged reports whether the frame that should be at the end, and has
// this ID, had been acknowledged, so that its absence is damage. A batch is
// begun only after the one before it was synced. So a header of a later batch
// behind the end proves it. One case cannot be detected: bytes that rot in the
// very last batch look like a torn end.
func (s *Scanner) Acknowledged(missing uint64) (bool, error) {
	if s.ackedOffset > 0 && missing < s.ackedBatch && s.end <= s.ackedOffset {
		return true, nil
	}
	found := false
	err := s.visitHeaders(func(f Frame) (bool, error) {
		if found = f.Batch > missing && f.ID >= f.Batch; found {
			s.ackedBatch, s.ackedOffset = f.Batch, f.Offset
		}
		return !found, nil
	})
	return found, err
}

// FindAfter finds the next valid frame with an ID above one, behind the end.
func (s *Scanner) FindAfter(id uint64) (next Frame, found bool, err error) {
	err = s.visitHeaders(func(f Frame) (bool, error) {
		if f.ID <= id || int64(f.Size()) > s.size-f.Offset {
			return true, nil
		}
		body := make([]byte, Align(f.Len()))
		if err := ReadFull(s.file, body, f.Offset+int64(f.headerSize)); err != nil {
			return false, err
		}
		if found = f.isBody(body); found {
			next = f
		}
		return !found, nil
	})
	return next, found, err
}

// Resume continues with a frame that FindAfter has found.
func (s *Scanner) Resume(f Frame) {
	s.end = f.Offset
	s.seek(s.end)
}

// visitHeaders visits everything behind the end that looks like the header of a
// frame, whatever may be between them, until visit returns false.
func (s *Scanner) visitHeaders(visit func(Frame) (bool, error)) error {
	magic := binary.LittleEndian.AppendUint32(nil, s.encoding.FrameMagic)
	overlap := s.encoding.headerSize()
	buffer := make([]byte, min(readBuffer+int64(overlap), max(s.size-s.end, 0)))
	for begin := s.end; begin < s.size; begin += readBuffer {
		b := buffer[:min(int64(len(buffer)), s.size-begin)]
		if err := ReadFull(s.file, b, begin); err != nil {
			return err
		}
		for at := 0; ; at++ {
			next := bytes.Index(b[at:], magic)
			if next < 0 || at+next >= readBuffer {
				break
			}
			at += next
			f, ok := s.encoding.parseFrame(b[at:], begin+int64(at))
			if !ok || at%alignment != 0 {
				continue
			}
			if more, err := visit(f); err != nil || !more {
				return err
			}
		}
	}
	return nil
}

// ReadFull fills b from an offset on.
func ReadFull(f io.ReaderAt, b []byte, at int64) error {
	n, err := f.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// resize returns a buffer of n bytes, the same one if it is large enough.
func resize(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n)
	}
	return b[:n]
}
