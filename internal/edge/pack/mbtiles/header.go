package mbtiles

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"micronode/fault"
	"micronode/internal/disk"
)

const (
	opOpen = "mbtiles.open"
	magic  = "SQLite format 3\x00"

	headerBytes = 100

	// SQLite takes its locks on bytes at this offset of the file, one range for
	// all kinds of them.
	lockStart, lockBytes = 0x40000000, 512
)

// refuse is a fault with a next step of its own.
func refuse(op string, kind fault.Kind, next, format string, args ...any) error {
	return fault.New(op, kind, format, args...).Advise(next)
}

const nextDamaged = "Copy or make the file again; `sqlite3 FILE \"PRAGMA integrity_check;\"` tells what is wrong with it."

func damaged(op, format string, args ...any) error {
	return refuse(op, fault.Malformed, nextDamaged, format, args...)
}

// openFile opens a regular file for reading. Without O_NONBLOCK, a named pipe
// in the folder would block the caller until it had a writer.
func openFile(path string) (*os.File, os.FileInfo, error) {
	file, err := disk.OpenAtOnce(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil, &fault.Error{Op: opOpen, Kind: fault.NotFound, Detail: "there is no such file", Next: "Correct the path, or copy the file to it.", Err: err}
	case errors.Is(err, os.ErrPermission):
		return nil, nil, &fault.Error{Op: opOpen, Kind: fault.Forbidden, Detail: "the file may not be read", Next: "Make the file readable for the user that runs the node (chmod a+r).", Err: err}
	case err != nil:
		return nil, nil, fault.Wrap(opOpen, err)
	}
	stat, err := file.Stat()
	if err == nil && !stat.Mode().IsRegular() {
		err = refuse(opOpen, fault.Malformed, "Name a file, not a folder or a device.", "not a regular file")
	}
	if err != nil {
		file.Close()
		return nil, nil, fault.Wrap(opOpen, err)
	}
	return file, stat, nil
}

// checkHeader checks the first hundred bytes and what they say about the rest.
func checkHeader(file *os.File, size int64) error {
	head := make([]byte, 1024)
	n, err := file.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fault.Wrap(opOpen, err)
	}
	head = head[:n]
	if !bytes.HasPrefix(head, []byte(magic)) {
		return notSQLite(head, size)
	}
	if n < headerBytes {
		return damaged(opOpen, "the file ends within its header")
	}
	return checkPages(head, size)
}

// notSQLite distinguishes an encrypted database, which looks like noise in
// whole pages, from a file of some other kind.
func notSQLite(head []byte, size int64) error {
	var seen [256]bool
	distinct := 0
	for _, b := range head {
		if !seen[b] {
			seen[b] = true
			distinct++
		}
	}
	if size > 0 && size%512 == 0 && distinct > 220 {
		return refuse(opOpen, fault.Malformed, "Decrypt it first, for instance with sqlcipher_export() of SQLCipher; packs are read without keys.",
			"not a SQLite file as it is; it looks encrypted")
	}
	return refuse(opOpen, fault.Malformed, "Check that the file is an MBTiles archive; `file FILE` tells what it is.", "not a SQLite file")
}

func checkPages(head []byte, size int64) error {
	pageSize := int64(binary.BigEndian.Uint16(head[16:]))
	if pageSize == 1 {
		pageSize = 65536
	}
	if pageSize < 512 || pageSize&(pageSize-1) != 0 {
		return damaged(opOpen, "the header gives a page size of %d", pageSize)
	}
	usable := pageSize - int64(head[20])
	if usable < 480 {
		return damaged(opOpen, "the header leaves %d bytes of a page", usable)
	}
	// The count in the header is valid only if the last writer updated it;
	// older writers leave it out of date, which the counter at 92 shows.
	pages := size / pageSize
	counted := int64(binary.BigEndian.Uint32(head[28:]))
	if counted > pages && bytes.Equal(head[24:28], head[92:96]) {
		return damaged(opOpen, "the file is truncated: %d bytes, its header says %d", size, counted*pageSize)
	}
	if pages == 0 {
		return damaged(opOpen, "the file ends within its first page")
	}
	if encoding := binary.BigEndian.Uint32(head[56:]); encoding > 1 {
		return refuse(opOpen, fault.Malformed, "Write it anew as UTF-8: `sqlite3 FILE .dump | sqlite3 NEW`.", "the texts of the file are not UTF-8")
	}
	return nil
}

// checkNotWritten refuses a file that is being written, or was left half
// written. Readers with immutable=1 check neither locks nor journals, so this
// is the only moment to do it. Later writes show in the file's stat data.
func checkNotWritten(file *os.File, path string) error {
	if isLocked(file) {
		return refuse(opOpen, fault.NotReady, "Wait until the program that writes it is done; it is looked at again.", "the file is being written")
	}
	checkpoint := "Run: sqlite3 " + shellQuoted(filepath.Base(path)) + ` "PRAGMA wal_checkpoint(TRUNCATE); PRAGMA journal_mode=DELETE;"`
	for _, suffix := range []string{"-wal", "-journal"} {
		if isLiveJournal(path + suffix) {
			return refuse(opOpen, fault.NotReady, checkpoint, "a live journal (%s) lies beside the file", suffix)
		}
	}
	return nil
}

// isLiveJournal reports whether a journal holds anything. SQLite ends a
// transaction by removing the journal, by truncating it, or by overwriting its
// start with zeros.
func isLiveJournal(path string) bool {
	journal, err := disk.OpenAtOnce(path)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	defer journal.Close()
	var first [1]byte
	n, err := journal.Read(first[:])
	if errors.Is(err, io.EOF) {
		return false
	}
	return err != nil || n > 0 && first[0] != 0
}

func shellQuoted(text string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-+,", r)
	}
	if strings.IndexFunc(text, func(r rune) bool { return !plain(r) }) < 0 && !strings.HasPrefix(text, "-") {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
