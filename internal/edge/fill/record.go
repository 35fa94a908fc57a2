package fill

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/edge/fill/freshness"
	"micronode/internal/store"
)

// records is what the disk knows of the index: one small file for each entry.
// It is a help, not a promise: what cannot be written or read is fetched again.
//
// One at a time works on the files, and looks into the index when it is its
// turn. So a purge, which takes entries out of the index first and removes
// their files second, leaves nothing behind that a restart could bring back.
type records struct {
	// set at construction
	folder    string
	unwritten func()        // counts what could not be written
	turn      chan struct{} // holds one value while somebody works on the files
}

const (
	recordSuffix = ".entry"
	recordTemp   = ".temp"
	recordBytes  = 1 << 20 // larger than any that we write
	recordFormat = 1
)

// record is an entry on disk.
type record struct {
	Format  int         `json:"format"`
	Key     string      `json:"key"`
	Sent    http.Header `json:"sent,omitempty"`
	Status  int         `json:"status"`
	Header  http.Header `json:"header"`
	Asked   time.Time   `json:"asked"`
	Came    time.Time   `json:"came"`
	Until   *time.Time  `json:"until,omitempty"`
	Address b3.Address  `json:"address"`
	Size    int64       `json:"size"`
}

// name is the file of an entry. Entries that replace each other share it.
func (e *entry) name() string {
	sum := b3.Of([]byte(e.key + "\x00" + e.variant()))
	return hex.EncodeToString(sum[:16]) + recordSuffix
}

// marshal writes an entry: the address of the text on the first line, and then
// the text.
func (e *entry) marshal() ([]byte, error) {
	for _, header := range []http.Header{e.sent, e.resp.Header} {
		for _, values := range header {
			if slices.ContainsFunc(values, func(value string) bool { return !utf8.ValidString(value) }) {
				return nil, errors.New("a header has bytes that JSON would not give back")
			}
		}
	}
	r := record{Format: recordFormat, Key: e.key, Sent: e.sent, Status: e.resp.Status, Header: e.resp.Header,
		Asked: e.resp.RequestTime, Came: e.resp.ResponseTime, Address: e.address, Size: e.size}
	if !e.until.IsZero() {
		r.Until = &e.until
	}
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return append([]byte(b3.Of(text).String()+"\n"), text...), nil
}

// unmarshalEntry reads what marshal wrote, and nothing else.
func unmarshalEntry(data []byte) (*entry, error) {
	const op = "edge.record"
	sum, text, _ := bytes.Cut(data, []byte("\n"))
	if want, err := b3.Parse(string(sum)); err != nil || b3.Of(text) != want {
		return nil, fault.New(op, fault.Malformed, "the record is damaged")
	}
	var r record
	if err := json.Unmarshal(text, &r); err != nil || r.Format != recordFormat || r.Key == "" || r.Size < 0 {
		return nil, fault.New(op, fault.Malformed, "the record is not one of ours")
	}
	resp := freshness.Response{Status: r.Status, Header: r.Header, RequestTime: r.Asked, ResponseTime: r.Came}
	if resp.Header == nil {
		resp.Header = http.Header{}
	}
	e := newEntry(r.Key, r.Sent, resp, time.Time{})
	if r.Until != nil {
		e.until = *r.Until
	}
	e.address, e.size = r.Address, r.Size
	return e, nil
}

// write puts an entry on disk if it is still wanted when it is its turn.
func (r *records) write(e *entry, wanted func(*entry) bool) {
	text, err := e.marshal()
	if err != nil || len(text) > recordBytes {
		return
	}
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	if !wanted(e) {
		return
	}
	file := filepath.Join(r.folder, e.name())
	if os.WriteFile(file+recordTemp, text, 0o600) != nil || os.Rename(file+recordTemp, file) != nil {
		_ = os.Remove(file + recordTemp) // what is half-written only takes room
		_ = os.Remove(file)              // rather none than that of an older answer
		r.unwritten()
	}
}

// remove takes the record of an entry off the disk, unless it is that of one
// that has replaced it.
func (r *records) remove(e *entry) {
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	file := filepath.Join(r.folder, e.name())
	if there, err := readRecord(file); err == nil && !there.same(e) {
		return
	}
	_ = os.Remove(file) // it may not be there
}

// same reports whether two entries are the same answer.
func (e *entry) same(other *entry) bool {
	return e.key == other.key && e.address == other.address && e.resp.ResponseTime.Equal(other.resp.ResponseTime)
}

func readRecord(file string) (*entry, error) {
	info, err := os.Lstat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > recordBytes {
		return nil, fault.New("edge.record", fault.Malformed, "that is no record")
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return unmarshalEntry(data)
}

// restore brings back what the folder remembers and the store still has, and
// clears away the rest of both.
func (c *Cache) restore() error {
	if err := os.MkdirAll(c.spec.Folder, 0o700); err != nil {
		return fault.Wrap("edge.restore", err)
	}
	files, err := os.ReadDir(c.spec.Folder)
	if err != nil {
		return fault.Wrap("edge.restore", err)
	}
	c.records = &records{folder: c.spec.Folder, unwritten: c.spec.Counters.Unwritten, turn: make(chan struct{}, 1)}
	entries := c.readAll(files)
	slices.SortFunc(entries, func(a, b *entry) int { return a.resp.ResponseTime.Compare(b.resp.ResponseTime) })
	for _, e := range entries {
		for _, old := range c.index.insert(e) {
			c.records.remove(old)
		}
	}
	return c.sweep()
}

// readAll reads the records whose bodies are here, and removes the others. What
// is not ours by its name is left alone.
func (c *Cache) readAll(files []fs.DirEntry) (entries []*entry) {
	for _, one := range files {
		file := filepath.Join(c.spec.Folder, one.Name())
		if strings.HasSuffix(one.Name(), recordTemp) {
			_ = os.Remove(file) // left by a crash
			continue
		}
		if !strings.HasSuffix(one.Name(), recordSuffix) {
			continue
		}
		e, err := readRecord(file)
		if err == nil && e.name() == one.Name() {
			var info store.Info
			info, err = c.spec.Store.Stat(context.Background(), e.address)
			if err == nil && info.Size == e.size {
				entries = append(entries, e)
				continue
			}
		}
		_ = os.Remove(file) // damaged, or its body is gone: it is fetched again
	}
	return entries
}

// sweep deletes bodies that no entry refers to. A crash can leave them.
func (c *Cache) sweep() error {
	for info, err := range store.Walk(context.Background(), c.spec.Store) {
		if err != nil {
			return fault.Wrap("edge.restore", err)
		}
		if c.index.bodies[info.Address] == 0 {
			_ = c.spec.Store.Delete(context.Background(), info.Address) // if not, it is evicted one day
		}
	}
	return nil
}
