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

// How long others may keep an answer, and how long they may give it out while
// they ask again, or cannot. These are the figures of the reference
// implementation: who has something changes slowly, but that nobody has it may
// be over in a moment.
const (
	keepSome = "public, max-age=300, stale-while-revalidate=600, stale-if-error=172800"
	keepNone = "public, max-age=15, stale-while-revalidate=60, stale-if-error=3600"
)

// Document is a list of records that is complete.
type Document struct {
	Text         []byte
	Type         string
	ETag         string
	CacheControl string
}

// Page is an answer that is being written. It is owned by the handler.
type Page struct {
	// set at construction
	w      http.ResponseWriter
	form   Form
	filter Filter
	now    time.Time

	seen  map[string]bool // IDs that are on the page
	taken []Record        // those of a document
	begun bool            // the head of a stream is on its way
}

// NewPage begins an answer.
func NewPage(w http.ResponseWriter, form Form, filter Filter, now time.Time) *Page {
	w.Header().Add("Vary", "Accept")
	return &Page{w: w, form: form, filter: filter, now: now, seen: map[string]bool{}, taken: []Record{}}
}

// Full reports whether no more records will be taken.
func (p *Page) Full() bool { return len(p.seen) >= mostProviders }

// Add puts a record on the page, unless its host is there already or nobody
// wants it. If the page is a stream, the record is on its way.
func (p *Page) Add(r Record) error {
	if p.Full() || p.seen[r.ID] {
		return nil
	}
	r, wanted := p.filter.Apply(r)
	if !wanted {
		return nil
	}
	p.seen[r.ID] = true
	if p.form != NDJSON {
		p.taken = append(p.taken, r)
		return nil
	}
	p.begin(keepSome)
	if _, err := p.w.Write(encode(r)); err != nil {
		return fault.WrapKind("index.routing", fault.BrokenPipe, err)
	}
	return fault.WrapKind("index.routing", fault.BrokenPipe, http.NewResponseController(p.w).Flush())
}

// Begun reports whether a part of the answer is on its way.
func (p *Page) Begun() bool { return p.begun }

// EndStream says of a stream without a record that there is none. A document is
// for the caller to send.
func (p *Page) EndStream() {
	if !p.begun {
		p.begin(keepNone)
		p.w.WriteHeader(http.StatusOK)
	}
}

// begin sets the head of a stream.
func (p *Page) begin(keep string) {
	if p.begun {
		return
	}
	p.begun = true
	header := p.w.Header()
	header.Set("Content-Type", NDJSON.Type())
	header.Set("Cache-Control", keep)
	header.Set("Last-Modified", p.now.UTC().Format(http.TimeFormat))
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Accel-Buffering", "no") // a proxy that collects records would defeat them
}

// Document is the page as one document. Its tag is that of its bytes.
func (p *Page) Document() Document {
	d := Document{Text: encode(Response{p.taken}), Type: JSON.Type(), CacheControl: keepNone}
	if len(p.taken) > 0 {
		d.CacheControl = keepSome
	}
	d.ETag = `"` + b3.Of(d.Text).String() + `"`
	return d
}

// Write writes a part of the document.
func (d Document) Write(w io.Writer, from, length int64) error {
	_, err := w.Write(d.Text[from : from+length])
	return err
}

// encode writes a value and a line break.
func encode(value any) []byte {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		panic("delegated: " + err.Error()) // plain structs of strings
	}
	return text.Bytes()
}
