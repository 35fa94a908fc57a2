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

// entryFiles is the index on disk: one small file for each entry. It is best
// effort: an entry that cannot be written or read is fetched again.
//
// The files are changed by one goroutine at a time, which checks the index
// while it holds the lock. So a purge, which removes entries from the index
// first and their files second, leaves nothing behind that a restart could
// restore.
type entryFiles struct {
	// set at construction
	folder        string
	onWriteFailed func()        // counts failed writes
	lock          chan struct{} // holds one value while the files are being changed
}

const (
	entrySuffix     = ".entry"
	entryTempSuffix = ".temp"
	maxEntryFile    = 1 << 20 // larger than any that we write
	entryFormat     = 1
)

// entryFile is an entry on disk.
type entryFile struct {
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

// fileName is the file of an entry. Entries that replace each other share it.
func (e *entry) fileName() string {
	sum := b3.Of([]byte(e.key + "\x00" + e.variant()))
	return hex.EncodeToString(sum[:16]) + entrySuffix
}

// marshal encodes an entry: the address of the text on the first line, and then
// the text.
func (e *entry) marshal() ([]byte, error) {
	for _, header := range []http.Header{e.varyValues, e.resp.Header} {
		for _, values := range header {
			if slices.ContainsFunc(values, func(value string) bool { return !utf8.ValidString(value) }) {
				return nil, errors.New("a header has bytes that JSON cannot represent")
			}
		}
	}
	r := entryFile{Format: entryFormat, Key: e.key, Sent: e.varyValues, Status: e.resp.Status, Header: e.resp.Header,
		Asked: e.resp.RequestTime, Came: e.resp.ResponseTime, Address: e.address, Size: e.size}
	if !e.redirectUntil.IsZero() {
		r.Until = &e.redirectUntil
	}
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return append([]byte(b3.Of(text).String()+"\n"), text...), nil
}

// unmarshalEntry decodes the output of marshal, and nothing else.
func unmarshalEntry(data []byte) (*entry, error) {
	const op = "edge.record"
	sum, text, _ := bytes.Cut(data, []byte("\n"))
	if want, err := b3.Parse(string(sum)); err != nil || b3.Of(text) != want {
		return nil, fault.New(op, fault.Malformed, "the record is damaged")
	}
	var r entryFile
	if err := json.Unmarshal(text, &r); err != nil || r.Format != entryFormat || r.Key == "" || r.Size < 0 {
		return nil, fault.New(op, fault.Malformed, "the record has an unknown format")
	}
	resp := freshness.Response{Status: r.Status, Header: r.Header, RequestTime: r.Asked, ResponseTime: r.Came}
	if resp.Header == nil {
		resp.Header = http.Header{}
	}
	withhold(resp.Status, resp.Header) // the list may have grown since it was written
	e := newEntry(r.Key, r.Sent, resp, time.Time{})
	if r.Until != nil {
		e.redirectUntil = *r.Until
	}
	e.address, e.size = r.Address, r.Size
	return e, nil
}

// write writes an entry to disk if it is still wanted once the lock is held.
func (f *entryFiles) write(e *entry, wanted func(*entry) bool) {
	text, err := e.marshal()
	if err != nil || len(text) > maxEntryFile {
		return
	}
	f.lock <- struct{}{}
	defer func() { <-f.lock }()
	if !wanted(e) {
		return
	}
	file := filepath.Join(f.folder, e.fileName())
	if os.WriteFile(file+entryTempSuffix, text, 0o600) != nil || os.Rename(file+entryTempSuffix, file) != nil {
		_ = os.Remove(file + entryTempSuffix) // a partial file only takes space
		_ = os.Remove(file)                   // no file is better than that of an older answer
		f.onWriteFailed()
	}
}

// remove deletes the file of an entry, unless it belongs to an entry that has
// replaced it.
func (f *entryFiles) remove(e *entry) {
	f.lock <- struct{}{}
	defer func() { <-f.lock }()
	file := filepath.Join(f.folder, e.fileName())
	if there, err := readEntryFile(file); err == nil && !there.same(e) {
		return
	}
	_ = os.Remove(file) // it may not be there
}

// same reports whether two entries are the same answer.
func (e *entry) same(other *entry) bool {
	return e.key == other.key && e.address == other.address && e.resp.ResponseTime.Equal(other.resp.ResponseTime)
}

func readEntryFile(file string) (*entry, error) {
	info, err := os.Lstat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxEntryFile {
		return nil, fault.New("edge.record", fault.Malformed, "that is not a record")
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return unmarshalEntry(data)
}

// restore loads the entries of the folder whose bodies the store still has, and
// deletes the rest of both.
func (c *Cache) restore() error {
	if err := os.MkdirAll(c.spec.Folder, 0o700); err != nil {
		return fault.Wrap("edge.restore", err)
	}
	files, err := os.ReadDir(c.spec.Folder)
	if err != nil {
		return fault.Wrap("edge.restore", err)
	}
	c.files = &entryFiles{folder: c.spec.Folder, onWriteFailed: c.spec.Counters.WriteFailed, lock: make(chan struct{}, 1)}
	entries := c.readEntries(files)
	slices.SortFunc(entries, func(a, b *entry) int { return a.resp.ResponseTime.Compare(b.resp.ResponseTime) })
	for _, e := range entries {
		for _, old := range c.index.insert(e) {
			c.files.remove(old)
		}
	}
	return c.deleteOrphans()
}

// readEntries reads the entries whose bodies are in the store, and removes the
// files of others. Files with other names are not touched.
func (c *Cache) readEntries(files []fs.DirEntry) (entries []*entry) {
	for _, one := range files {
		file := filepath.Join(c.spec.Folder, one.Name())
		if strings.HasSuffix(one.Name(), entryTempSuffix) {
			_ = os.Remove(file) // left by a crash
			continue
		}
		if !strings.HasSuffix(one.Name(), entrySuffix) {
			continue
		}
		e, err := readEntryFile(file)
		if err == nil && e.fileName() == one.Name() {
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

// deleteOrphans deletes bodies that no entry refers to. A crash can leave them.
func (c *Cache) deleteOrphans() error {
	for info, err := range store.Walk(context.Background(), c.spec.Store) {
		if err != nil {
			return fault.Wrap("edge.restore", err)
		}
		if c.index.bodyRefs[info.Address] == 0 {
			_ = c.spec.Store.Delete(context.Background(), info.Address) // if this fails, it is evicted later
		}
	}
	return nil
}
