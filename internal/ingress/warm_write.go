package ingress

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"

	"micronode/internal/corr"
)

// appendHeader writes the header of an answer: the lines of its template, and
// between them the values that are its own.
func (l *warmLane) appendHeader(out []byte, p *PreparedResponse, form *compiledTemplate, request *warmRequest, now time.Time) []byte {
	out = append(out, form.toOrigin...)
	if form.corsLines != nil {
		out = append(out, form.corsLines...)
	} else {
		out = append(out, request.corsLines...)
	}
	if !p.reusable {
		out = append(out, form.toAge...)
		if p.template.hasAge {
			out = append(out, "Age: "...)
			out = append(strconv.AppendInt(out, int64(p.age/time.Second), 10), "\r\n"...)
		}
		out = append(out, form.toLength...)
		out = append(out, "Content-Length: "...)
		out = append(strconv.AppendInt(out, p.size, 10), "\r\n"...)
		out = append(out, form.toTag...)
		if len(p.etag) > 0 {
			out = append(out, "Etag: "...)
			out = append(append(out, p.etag...), "\r\n"...)
		}
		out = append(out, form.toModified...)
		if !p.modified.IsZero() {
			out = p.modified.UTC().AppendFormat(append(out, "Last-Modified: "...), http.TimeFormat+"\r\n")
		}
	}
	out = append(out, form.toCorrID...)
	out = append(out, "X-Corr-Id: "...)
	if corr.Valid(request.corrID) {
		out = append(out, request.corrID...)
	} else {
		out = corr.AppendNew(out)
	}
	out = append(out, "\r\n"...)
	out = append(out, form.afterCorrID...)
	if !form.hasDate {
		line := l.date.Load()
		if second := now.Unix(); line == nil || line.second != second { // the text is made once a second
			line = &dateLine{second, now.UTC().AppendFormat([]byte("Date: "), http.TimeFormat+"\r\n")}
			l.date.Store(line)
		}
		out = append(out, line.text...)
	}
	return append(out, "\r\n"...)
}

// writeWarm writes an answer. Usually that is one system call, two if the body
// is in a file. A slow client gets its time, as in a transfer: while the write
// is blocked, it checks about every second whether the client has taken
// something.
func (c *conn) writeWarm(w *warmConn, p *PreparedResponse, began time.Time) error {
	byKernel := hasSendfile && p.file != nil && c.tcp != nil
	if byKernel {
		if err := w.prepareFile(c, p); err != nil {
			return err
		}
	} else {
		parts := append(append(w.buffer.parts[:0], w.buffer.out), p.parts...)
		if p.file != nil { // and no file descriptor to send it to
			body := make([]byte, p.size)
			reading := c.beginWarmRead(began)
			_, err := p.file.ReadAt(body, p.offset)
			if !c.advanceWarm(reading, 0) {
				return errOverrun
			}
			if err != nil {
				return err
			}
			parts = append(parts, body)
		}
		w.vector = parts
	}
	moved := began
	for again := false; ; again = true {
		var n int64
		var err error
		if byKernel {
			step := -max(1, int64(time.Since(c.opened)))
			c.warmStep.Store(step)
			n, err = w.sender.send()
			if !c.advanceWarm(step, 0) {
				return errOverrun
			}
		} else {
			n, err = w.vector.WriteTo(c.Conn)
		}
		if err == nil {
			return nil
		}
		now := time.Now()
		if again && n > 0 {
			moved = now // when the first write moved bytes is unknown
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || c.closed.Load() || now.Sub(moved) >= c.listener.server.times.Progress {
			return err
		}
		w.deadlinesSet = time.Time{}
		_ = c.Conn.SetWriteDeadline(now.Add(writePoll + writePollStep)) // fails on a closed connection, and then the write reports it
	}
}

// fileSender sends a header and a part of a file: the header with MSG_MORE, so
// that the kernel puts both into the same packets, and then the file by
// sendfile. Compared with reading the file and writing it, this is as fast for
// 16 KiB and takes two thirds of the time from 64 KiB on.
type fileSender struct {
	// set at construction
	raw      syscall.RawConn
	sendFunc func(fd uintptr) bool // sendAvailable, made into a function once

	// of the current answer
	head   []byte
	file   *os.File // nil if there is none
	offset int64
	left   int64
	sent   int64
	err    error
}

func (w *warmConn) prepareFile(c *conn, p *PreparedResponse) error {
	if w.sender == nil {
		raw, err := c.tcp.SyscallConn()
		if err != nil {
			return err
		}
		w.sender = &fileSender{raw: raw}
		w.sender.sendFunc = w.sender.sendAvailable
	}
	s := w.sender
	s.head, s.file, s.offset, s.left = w.buffer.out, p.file, p.offset, p.size
	return nil
}

// send continues until all is sent, or the deadline has passed.
func (s *fileSender) send() (int64, error) {
	s.sent, s.err = 0, nil
	err := s.raw.Write(s.sendFunc)
	if err == nil {
		err = s.err
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		s.file, s.head = nil, nil
	}
	return s.sent, err
}

// sendAvailable sends what the kernel takes at the moment, and reports whether
// it is finished.
func (s *fileSender) sendAvailable(fd uintptr) bool {
	for len(s.head) > 0 || s.left > 0 {
		n, err := s.sendNext(int(fd))
		switch {
		case err == syscall.EAGAIN:
			return false
		case err == syscall.EINTR:
		case err != nil:
			s.err = os.NewSyscallError("sendfile", err)
			return true
		case n == 0:
			s.err = io.ErrUnexpectedEOF // the file is shorter than promised
			return true
		}
		s.sent += int64(n)
	}
	return true
}

func (s *fileSender) sendNext(fd int) (n int, err error) {
	if len(s.head) > 0 {
		n, err = sendPart(fd, s.head, s.left > 0)
		s.head = s.head[max(n, 0):]
		return max(n, 0), err
	}
	n, err = sendFile(fd, s.file, &s.offset, s.left)
	s.left -= int64(max(n, 0))
	return max(n, 0), err
}
