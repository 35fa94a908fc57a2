package delegated

import (
	"encoding/json"
	"errors"
	"io"
	"time"

	"micronode/internal/index/record"
)

// errShape is what is wrong with a document that is JSON, but not a list of
// records.
var errShape = errors.New("it is JSON, but no list of records")

// list is what was read of an answer: usable records, one for each host.
type list struct {
	records []Record
	at      map[string]int // where a host is in the list, by its ID

	first func()      // is called when there is a record; nil if nobody wants to know
	more  *time.Timer // ends the wait for more; nil until there is a record
}

// stop ends the timer. Nothing more is read.
func (l *list) stop() {
	if l.more != nil {
		l.more.Stop()
	}
}

// full reports whether enough was read.
func (l *list) full() bool { return len(l.records) == mostProviders }

// add takes a record, if it is one. A second one of a host adds addresses to the
// first.
func (l *list) add(raw json.RawMessage) {
	var r Record
	if json.Unmarshal(raw, &r) != nil || !r.usable() {
		return // it is JSON, so it may be a record of a sort that we do not know
	}
	if at, known := l.at[r.ID]; known {
		first := &l.records[at].Addrs
		*first = append(*first, r.Addrs[:min(len(r.Addrs), mostLooked-len(*first))]...)
		return
	}
	if l.at == nil {
		l.at = map[string]int{}
	}
	r.Addrs = r.Addrs[:min(len(r.Addrs), mostLooked)]
	l.at[r.ID] = len(l.records)
	l.records = append(l.records, r)
	if l.first != nil && len(l.records) == 1 {
		l.first()
	}
}

// providers is what the list tells us.
func (l *list) providers() []record.Provider {
	var all []record.Provider
	for _, r := range l.records {
		all = append(all, r.provider())
	}
	return all
}

// readDocument reads {"Providers":[…]}, as far as it makes sense. The error says
// why it was not read to its end; what came before it is in the list.
func (l *list) readDocument(from io.Reader) error {
	d := json.NewDecoder(from)
	if err := expect(d, '{'); err != nil {
		return err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		if key != "Providers" {
			if err := d.Decode(new(json.RawMessage)); err != nil {
				return err
			}
			continue
		}
		if done, err := l.readArray(d); done || err != nil {
			return err
		}
	}
	return expect(d, '}')
}

// readArray reads the records of a document. It is done when no more are taken.
func (l *list) readArray(d *json.Decoder) (done bool, err error) {
	token, err := d.Token()
	switch {
	case err != nil:
		return false, err
	case token == nil: // a null is an empty list to some
		return false, nil
	case token != json.Delim('['):
		return false, errShape
	}
	for d.More() {
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return false, err
		}
		if l.add(raw); l.full() {
			return true, nil
		}
	}
	return false, expect(d, ']')
}

func expect(d *json.Decoder, want json.Delim) error {
	token, err := d.Token()
	if err == nil && token != want {
		err = errShape
	}
	return err
}

// readLines reads one record after the other. The error is as that of
// readDocument.
func (l *list) readLines(from io.Reader) error {
	d := json.NewDecoder(from)
	for !l.full() {
		var raw json.RawMessage
		switch err := d.Decode(&raw); {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		l.add(raw)
	}
	return nil
}
