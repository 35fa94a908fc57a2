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
	mostCondemned      = 64       // files in quarantine
	mostCondemnedBytes = 64 << 20 // and their bytes
)

// quarantine is where corrupt files go, for somebody to look at: is it the disk,
// a program, a person? It holds a few, and the first are as telling as the last,
// so when it is full, others are removed.
type quarantine struct {
	mu    sync.Mutex //lockblock:leaf two numbers
	files int
	bytes int64
}

// admit counts a file, if there is room for it.
func (q *quarantine) admit(length int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.files >= mostCondemned || q.bytes+length > mostCondemnedBytes {
		return false
	}
	q.files++
	q.bytes += length
	return true
}

// take moves a file into quarantine, or removes it. If neither can be done, the
// disk is in such a state that the next who reads the file will be told.
func (q *quarantine) take(t *tree, path string, length int64) {
	if q.admit(length) {
		name := filepath.Base(path) + "." + strconv.FormatInt(time.Now().UnixNano(), 36)
		to := filepath.Join(t.root, quarantineName, name)
		if t.rename(path, to) == nil {
			_ = t.syncFolders(to, path) // it may come back, and be found corrupt again
			return
		}
	}
	_ = t.remove(path)
}

// count counts what is there from earlier.
func (q *quarantine) count(folder string) error {
	return each(folder, func(_ string, entry fs.DirEntry) error {
		info, err := entry.Info()
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		if err == nil {
			q.files++
			q.bytes += info.Size()
		}
		return nil
	})
}
