package session

import "crypto/tls"

// source reads from TLS without waiting inside TLS: that takes a stack of 8 KiB,
// which cannot shrink while it is in use, and a node has ten thousand sessions
// that do nothing but wait. So TLS reads what the batchConn holds and gets
// errNoData when that is not enough; the wait for more is here, where the stack
// is shallow.
//
// No byte is lost by that. TLS reads on only when it holds neither plaintext nor
// a whole record, and it keeps a partial record.
type source struct {
	// set at construction
	conn *tls.Conn
	raw  *batchConn

	// owned by the task that reads
	first    [1]byte // the next byte, if hasFirst
	hasFirst bool
}

// newSource is for a connection whose handshake is done: during the handshake TLS
// must wait by itself, because it cannot stop in the middle and resume.
func newSource(conn *tls.Conn, raw *batchConn) *source {
	raw.nonBlocking = raw.sys != nil
	return &source{conn: conn, raw: raw}
}

// isEmpty reports whether everything that has arrived was read, so that the next
// Read would wait for the socket. To find out it must read a byte, which it keeps
// for the next Read.
func (s *source) isEmpty() bool {
	if s.hasFirst || s.raw.sys == nil || s.raw.readErr != nil {
		return false
	}
	n, err := s.conn.Read(s.first[:])
	s.hasFirst = n > 0
	return n == 0 && err == errNoData
}

// Read waits until there is something to read. TLS returns a record at a time; of
// the records that arrived with it, Read returns as many as p has room for.
func (s *source) Read(p []byte) (total int, err error) {
	if s.hasFirst && len(p) > 0 {
		s.hasFirst = false
		total = copy(p, s.first[:])
	}
	for {
		n, err := s.conn.Read(p[total:])
		total += n
		switch {
		case total > 0 && (err == errNoData || total == len(p)):
			return total, nil // TLS may have looked for an alert after them, which has not arrived completely
		case err == errNoData:
			err = s.raw.fetch()
		case err == nil && !s.raw.nonBlocking:
			return total, nil // the next call would wait
		}
		if err != nil {
			return total, err
		}
	}
}

// errNoData is returned by batchConn.Read while there is nothing to read.
var errNoData error = noDataError{}

// noDataError looks like a deadline that has passed, after which TLS can be read
// again. TLS would keep any other error.
type noDataError struct{}

func (noDataError) Error() string   { return "nothing has arrived yet" }
func (noDataError) Timeout() bool   { return true }
func (noDataError) Temporary() bool { return true }
