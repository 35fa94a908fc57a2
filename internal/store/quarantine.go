package store

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

const (
	maxQuarantineFiles = 64       // files in quarantine
	maxQuarantineBytes = 64 << 20 // and their bytes
)

// quarantine keeps corrupt files for inspection: was it the disk, a program, a
// person? It holds a few, and the first are as useful as the last, so when it
// is full, others are removed.
type quarantine struct {
	mu    sync.Mutex //lockblock:leaf two numbers
	files int
	bytes int64
}

// reserve counts a file, if there is space for it.
func (q *quarantine) reserve(length int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.files >= maxQuarantineFiles || q.bytes+length > maxQuarantineBytes {
		return false
	}
	q.files++
	q.bytes += length
	return true
}

// add moves a file into quarantine, and returns where it is, or removes it. If both
// fail, the next read of the file reports the error.
func (q *quarantine) add(layout *diskLayout, path string, length int64) (aside string) {
	if q.reserve(length) {
		name := filepath.Base(path) + "." + strconv.FormatInt(time.Now().UnixNano(), 36)
		to := filepath.Join(layout.root, quarantineName, name)
		if layout.rename(path, to) == nil {
			_ = layout.syncFolders(to, path) // it may come back, and be found corrupt again
			return to
		}
	}
	_ = layout.remove(path)
	return ""
}

// countExisting counts the files from earlier runs, and calls found for each.
func (q *quarantine) countExisting(folder string, found func(path string, at time.Time)) error {
	return forEachEntry(folder, func(path string, entry fs.DirEntry) error {
		info, err := entry.Info()
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		if err == nil {
			q.files++
			q.bytes += info.Size()
			found(path, info.ModTime())
		}
		return nil
	})
}
