package delegated

import (
	"encoding/json"
	"errors"
	"io"
	"time"

	"micronode/internal/index/record"
)

// errShape is the error of a document that is JSON, but not a list of records.
var errShape = errors.New("it is JSON, but not a list of records")

// recordList is the usable records of an answer, one per host.
type recordList struct {
	records   []Record
	indexByID map[string]int // index of a host in the list, by its ID

	onFirst   func()      // called on the first record; may be nil
	moreTimer *time.Timer // ends the wait for more records; nil before the first
}

// stop stops the timer. No more is read after it.
func (l *recordList) stop() {
	if l.moreTimer != nil {
		l.moreTimer.Stop()
	}
}

// full reports whether the limit is reached.
func (l *recordList) full() bool { return len(l.records) == maxProviders }

// add adds a record, if it is usable. A second record of a host adds its
// addresses to the first.
func (l *recordList) add(raw json.RawMessage) {
	var r Record
	if json.Unmarshal(raw, &r) != nil || !r.usable() {
		return // it is JSON, so it may be of an unknown schema
	}
	if at, known := l.indexByID[r.ID]; known {
		first := &l.records[at].Addrs
		*first = append(*first, r.Addrs[:min(len(r.Addrs), maxScannedAddrs-len(*first))]...)
		return
	}
	if l.indexByID == nil {
		l.indexByID = map[string]int{}
	}
	r.Addrs = r.Addrs[:min(len(r.Addrs), maxScannedAddrs)]
	l.indexByID[r.ID] = len(l.records)
	l.records = append(l.records, r)
	if l.onFirst != nil && len(l.records) == 1 {
		l.onFirst()
	}
}

// providers converts the list to providers.
func (l *recordList) providers() []record.Provider {
	var all []record.Provider
	for _, r := range l.records {
		all = append(all, r.provider())
	}
	return all
}

// readDocument reads {"Providers":[…]}, as far as it is valid. The error says
// why it was not read to its end; the records before it are in the list.
func (l *recordList) readDocument(from io.Reader) error {
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

// readArray reads the records of a document. It is done when the list is full.
func (l *recordList) readArray(d *json.Decoder) (done bool, err error) {
	token, err := d.Token()
	switch {
	case err != nil:
		return false, err
	case token == nil: // some servers send null for an empty list
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

// readLines reads one record after the other. The error is like that of
// readDocument.
func (l *recordList) readLines(from io.Reader) error {
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
