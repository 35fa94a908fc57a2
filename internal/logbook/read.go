package logbook

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"micronode/fault"
	"micronode/internal/disk"
)

// Damage says what is wrong with a book, and where. It is the cause of
// fault.IntegrityFail.
type Damage struct {
	File   string
	Offset int64
	Detail string
}

// Error is for logs.
func (d *Damage) Error() string {
	return fmt.Sprintf("%s at byte %d: %s", d.File, d.Offset, d.Detail)
}

func damageError(d *Damage) error {
	return &fault.Error{Op: "logbook.open", Kind: fault.IntegrityFail, Err: d,
		Detail: "the log is damaged",
		Next: fmt.Sprintf("Nothing is written to a damaged log. Stop the node, keep a copy of %s, and put it back from a backup; "+
			"or move it away to begin with an empty one.", d.File)}
}

// readBuffer is how much of a file is read at a time.
const readBuffer = 256 << 10

// reading goes through a file from its first record to its end.
type reading struct {
	path string
	file disk.File
	salt uint64
	most int // bytes of a record

	end   int64 // behind the last frame that is right
	batch int64 // of that frame
}

// replay tells every record, and stops at the first frame that is not right.
// Then it looks whether that is the end.
func (r *reading) replay(tell func(record []byte) error) error {
	if err := r.readHeader(); err != nil {
		return err
	}
	from := bufio.NewReaderSize(io.NewSectionReader(r.file, r.end, math.MaxInt64-r.end), readBuffer)
	var body []byte
	for {
		f, ok, err := r.nextHeader(from)
		if err != nil {
			return err
		}
		if !ok {
			return r.judge()
		}
		body = fit(body, align(f.length))
		if _, err := io.ReadFull(from, body); isEnd(err) {
			return r.judge()
		} else if err != nil {
			return err
		}
		if checksum(body[:f.length]) != f.body {
			return r.judge()
		}
		r.end, r.batch = r.end+int64(f.size()), f.batch
		if f.length == 0 {
			continue // the mark behind a rewrite
		}
		if err := tell(body[:f.length:f.length]); err != nil {
			return err
		}
	}
}

func (r *reading) readHeader() error {
	b := make([]byte, bookHeader)
	_, err := r.file.ReadAt(b, 0)
	if err != nil && !isEnd(err) {
		return err
	}
	salt, ok := bookSalt(b)
	if version := b[len(bookMagic)-1]; !ok && string(b[:len(bookMagic)-1]) == bookMagic[:len(bookMagic)-1] && version != bookMagic[len(bookMagic)-1] {
		return &fault.Error{Op: "logbook.open", Kind: fault.RejectPolicy,
			Detail: fmt.Sprintf("%s has format %d, and this program knows %d", r.path, version, bookMagic[len(bookMagic)-1]),
			Next:   "Run the version of micronode that wrote it: nothing was changed."}
	}
	if !ok {
		return damageError(&Damage{File: r.path, Detail: "it does not begin like a log"})
	}
	r.salt, r.end = salt, bookHeader
	return nil
}

// nextHeader reads the header of the next frame, if there is one that may
// follow.
func (r *reading) nextHeader(from *bufio.Reader) (frame, bool, error) {
	var h [frameHeader]byte
	if _, err := io.ReadFull(from, h[:]); isEnd(err) {
		return frame{}, false, nil
	} else if err != nil {
		return frame{}, false, err
	}
	f, ok := frameAt(h[:], r.salt)
	return f, ok && f.length <= r.most && (f.batch == r.batch || f.batch == r.end), nil
}

// judge says whether what is behind the end was never acknowledged, which is
// no error, or is damaged. A batch is begun when the one before it was synced.
// So if one was begun behind the end, then what should be at the end had been
// acknowledged.
func (r *reading) judge() error {
	b := make([]byte, readBuffer+frameHeader)
	for at := r.end; ; at += readBuffer {
		n, err := r.file.ReadAt(b, at)
		if err != nil && !isEnd(err) {
			return err
		}
		for _, f := range sightings(b[:n], r.salt) {
			if f.batch > r.end {
				return damageError(&Damage{File: r.path, Offset: r.end, Detail: "a record that was acknowledged is not right"})
			}
		}
		if n <= readBuffer {
			return nil
		}
	}
}

// sightings finds everything that looks like the header of a frame, whatever
// may be between them.
func sightings(b []byte, salt uint64) (all []frame) {
	magic := binary.LittleEndian.AppendUint32(nil, frameMagic)
	for at := 0; ; at++ {
		next := bytes.Index(b[at:], magic)
		if next < 0 {
			return all
		}
		at += next
		if f, ok := frameAt(b[at:], salt); ok && at%alignment == 0 {
			all = append(all, f)
		}
	}
}

func isEnd(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// fit returns a buffer of n bytes, the same one if it is large enough.
func fit(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n)
	}
	return b[:n]
}
