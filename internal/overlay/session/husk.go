package session

import (
	"bytes"
	"crypto/tls"
	"reflect"
	"sync"
	"unsafe"
)

// TLS keeps two buffers for as long as a connection lives, each as large as the
// handshake made it: one for messages of the handshake, which is over, and one
// for records as they come. A peer's first message alone brings a key of more
// than a kilobyte, so the two take 4 KB, a third of what a quiet session costs,
// and crypto/tls has no way to ask for them back. So they are taken where they
// lie: see docs/adr/0013.
//
// What is relied on is small and is looked at when the program starts: that the
// two fields exist and are of type bytes.Buffer. Should a later Go have none of
// that, nothing is taken, sessions are larger, and a test says why. A buffer is
// only taken when it is empty, and only by the task that reads, which is the
// only one to call Read: nobody else looks at either.
var (
	recordsAt, recordsKnown   = bufferIn("rawInput")
	messagesAt, messagesKnown = bufferIn("hand")
)

// bufferIn finds a buffer in a connection of TLS.
func bufferIn(name string) (at uintptr, known bool) {
	field, exists := reflect.TypeFor[tls.Conn]().FieldByName(name)
	return field.Offset, exists && field.Type == reflect.TypeFor[bytes.Buffer]()
}

// spares are the buffers for records of sessions that are quiet.
var spares = sync.Pool{New: func() any { return bytes.NewBuffer(make([]byte, 0, spare)) }}

const (
	spare      = 2 << 10  // the size of a new one: small talk, and what TLS wants to have free behind it
	mostSpared = 20 << 10 // larger ones are not kept; one for the largest record is
)

// records is the buffer of a connection for what comes, or nil.
func records(conn *tls.Conn) *bytes.Buffer {
	if !recordsKnown {
		return nil
	}
	return (*bytes.Buffer)(unsafe.Add(unsafe.Pointer(conn), recordsAt))
}

// shed gives up the buffer for the messages of the handshake. TLS makes another
// one should the peer change its keys.
func shed(conn *tls.Conn) {
	if !messagesKnown {
		return
	}
	if b := (*bytes.Buffer)(unsafe.Add(unsafe.Pointer(conn), messagesAt)); b.Len() == 0 {
		*b = bytes.Buffer{}
	}
}

// fold takes the buffer for records away from a connection that waits for one
// to begin. TLS has just looked for more and found nothing, so it holds no view
// of the buffer either.
func (s *source) fold() {
	b := records(s.conn)
	if b == nil || b.Len() > 0 || b.Cap() == 0 {
		return
	}
	if s.lent == nil {
		s.lent = new(bytes.Buffer)
	}
	*s.lent, *b = *b, bytes.Buffer{}
	if s.lent.Reset(); s.lent.Cap() <= mostSpared {
		spares.Put(s.lent)
	}
	s.lent = nil
}

// unfold gives it one for what is about to come.
func (s *source) unfold() {
	b := records(s.conn)
	if b == nil || b.Cap() > 0 {
		return
	}
	s.lent = spares.Get().(*bytes.Buffer)
	*b, *s.lent = *s.lent, bytes.Buffer{}
}
