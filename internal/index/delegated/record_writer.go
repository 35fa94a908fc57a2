package delegated

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"micronode/b3"
	"micronode/fault"
)

// How long an answer may be cached, and served while it is revalidated, or when
// that fails. These are the values of the reference implementation: providers
// change slowly, but an empty answer may be outdated in a moment.
const (
	cacheControlFound = "public, max-age=300, stale-while-revalidate=600, stale-if-error=172800"
	cacheControlEmpty = "public, max-age=15, stale-while-revalidate=60, stale-if-error=3600"
)

// Document is a complete list of records.
type Document struct {
	Text         []byte
	Type         string
	ETag         string
	CacheControl string
}

// RecordWriter writes an answer. It is owned by the handler.
type RecordWriter struct {
	// set at construction
	w        http.ResponseWriter
	encoding Encoding
	filter   Filter
	now      time.Time

	seen    map[string]bool // IDs that were written
	records []Record        // of a document
	started bool            // the header of a stream has been sent
}

// NewRecordWriter starts an answer.
func NewRecordWriter(w http.ResponseWriter, encoding Encoding, filter Filter, now time.Time) *RecordWriter {
	w.Header().Add("Vary", "Accept")
	return &RecordWriter{w: w, encoding: encoding, filter: filter, now: now, seen: map[string]bool{}, records: []Record{}}
}

// Full reports whether no more records are accepted.
func (w *RecordWriter) Full() bool { return len(w.seen) >= maxProviders }

// Add writes a record, unless its host is there already or the filter excludes
// it. In a stream, the record has been sent when Add returns.
func (w *RecordWriter) Add(r Record) error {
	if w.Full() || w.seen[r.ID] {
		return nil
	}
	r, wanted := w.filter.Apply(r)
	if !wanted {
		return nil
	}
	w.seen[r.ID] = true
	if w.encoding != NDJSON {
		w.records = append(w.records, r)
		return nil
	}
	w.setStreamHeader(cacheControlFound)
	if _, err := w.w.Write(encode(r)); err != nil {
		return fault.WrapKind("index.routing", fault.BrokenPipe, err)
	}
	return fault.WrapKind("index.routing", fault.BrokenPipe, http.NewResponseController(w.w).Flush())
}

// Started reports whether a part of the answer has been sent.
func (w *RecordWriter) Started() bool { return w.started }

// EndStream completes a stream that has no records. A document is sent by the
// caller.
func (w *RecordWriter) EndStream() {
	if !w.started {
		w.setStreamHeader(cacheControlEmpty)
		w.w.WriteHeader(http.StatusOK)
	}
}

// setStreamHeader sets the header of a stream.
func (w *RecordWriter) setStreamHeader(keep string) {
	if w.started {
		return
	}
	w.started = true
	header := w.w.Header()
	header.Set("Content-Type", NDJSON.Type())
	header.Set("Cache-Control", keep)
	header.Set("Last-Modified", w.now.UTC().Format(http.TimeFormat))
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Accel-Buffering", "no") // a proxy that buffers records would defeat streaming
}

// Document returns the records as one document. Its ETag is the hash of its
// bytes.
func (w *RecordWriter) Document() Document {
	d := Document{Text: encode(Response{w.records}), Type: JSON.Type(), CacheControl: cacheControlEmpty}
	if len(w.records) > 0 {
		d.CacheControl = cacheControlFound
	}
	d.ETag = `"` + b3.Of(d.Text).String() + `"`
	return d
}

// Write writes a part of the document.
func (d Document) Write(w io.Writer, from, length int64) error {
	_, err := w.Write(d.Text[from : from+length])
	return err
}

// encode encodes a value and a line break.
func encode(value any) []byte {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		panic("delegated: " + err.Error()) // plain structs of strings
	}
	return text.Bytes()
}
