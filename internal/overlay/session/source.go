package session

import "crypto/tls"

// source is what comes out of TLS. Nobody waits inside TLS for it: that takes
// a stack of 8 KiB, which cannot shrink while it is in use, and a node has ten
// thousand sessions that do nothing but wait. So TLS is given what the wire
// holds and is told when that is not enough; the wait for more is here, where
// the stack is shallow.
//
// No byte can be left behind by that. TLS asks for more only when it holds
// neither plain bytes nor a whole record, and it keeps what it holds of one.
type source struct {
	// set at construction
	conn *tls.Conn
	wire *wire

	// owned by the task that reads
	first [1]byte // what comes next, if it is held
	held  bool
}

// newSource is for a connection whose handshake is done: in the handshake
// itself TLS must wait, because it cannot stop in the middle and go on.
func newSource(conn *tls.Conn, w *wire) *source {
	w.curt = w.raw != nil
	return &source{conn: conn, wire: w}
}

// dry tells whether everything that has come was read, so that whoever wants
// more has to wait for the wire. To find out it must read, and holds what it
// read for the next Read.
func (s *source) dry() bool {
	if s.held || s.wire.raw == nil || s.wire.readErr != nil {
		return false
	}
	n, err := s.conn.Read(s.first[:])
	s.held = n > 0
	return n == 0 && err == errDry
}

// Read waits for something to come. TLS gives a record at a time; of the others
// that came with it as many are taken as there is room for.
func (s *source) Read(p []byte) (total int, err error) {
	if s.held && len(p) > 0 {
		s.held = false
		total = copy(p, s.first[:])
	}
	for {
		n, err := s.conn.Read(p[total:])
		total += n
		switch {
		case total > 0 && (err == errDry || total == len(p)):
			return total, nil // it may have looked for an alert behind them, which is not all there yet
		case err == errDry:
			err = s.wire.fetch()
		case err == nil && !s.wire.curt:
			return total, nil // the next call would wait
		}
		if err != nil {
			return total, err
		}
	}
}

// errDry says that the wire holds nothing at the moment.
var errDry error = dry{}

// dry looks like a deadline that has passed, after which TLS goes on when it is
// asked again. Any other error it would keep for good.
type dry struct{}

func (dry) Error() string   { return "nothing has come yet" }
func (dry) Timeout() bool   { return true }
func (dry) Temporary() bool { return true }
