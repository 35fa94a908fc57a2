package keyfile

import (
	"crypto/ed25519"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"micronode/fault"
)

// PublicSuffix is appended to the name of the file with the public key.
const PublicSuffix = ".pub"

// Write creates the two files of a key: path, with the result of [Seal] or
// [FormatPlain], readable by its owner only, and path.pub. If one of them
// exists nothing is written: Conflict.
func Write(path string, private []byte, public ed25519.PublicKey) error {
	const op = "keyfile.write"
	if err := create(path+PublicSuffix, []byte(FormatPublic(public)+"\n"), 0o644); err != nil {
		return writeError(op, path+PublicSuffix, err)
	}
	if err := create(path, private, 0o600); err != nil {
		return errors.Join(writeError(op, path, err), os.Remove(path+PublicSuffix))
	}
	return nil
}

// create writes a new file atomically.
func create(path string, data []byte, mode fs.FileMode) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

func writeError(op, path string, err error) error {
	e := &fault.Error{Op: op, Kind: kindOf(err), Detail: path + " cannot be written", Err: err,
		Next: "Check the destination, then try again."}
	if e.Kind == fault.Conflict {
		e.Detail, e.Next = path+" is there already", "Choose another file. A key is never replaced."
	}
	return e
}

// kindOf returns the kind of an error of the file system.
func kindOf(err error) fault.Kind {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.NotFound
	case errors.Is(err, fs.ErrExist):
		return fault.Conflict
	case errors.Is(err, fs.ErrPermission):
		return fault.Forbidden
	}
	return fault.KindOf(err)
}

// maxName is the maximum length of a signer's name in bytes.
const maxName = 64

// suffixes are file name endings that are not part of the signer's name.
var suffixes = []string{PublicSuffix, ".key", ".age", ".pem", ".txt"}

// SignerName derives the name of a signer from that of the key file: without
// its endings, in the grammar of ids. alice.key.pub is alice. The path need not
// exist.
func SignerName(path string) string {
	name := strings.ToLower(filepath.Base(path))
	for slices.Contains(suffixes, filepath.Ext(name)) {
		name = strings.TrimSuffix(name, filepath.Ext(name))
	}
	name = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return '-'
		case !unicode.IsGraphic(r), r == utf8.RuneError:
			return -1
		}
		return r
	}, name)
	name = truncate(norm.NFC.String(name), maxName)
	if strings.Trim(name, "./-") == "" {
		return "signer"
	}
	return name
}

// truncate shortens a name to a number of bytes, and leaves its characters whole.
func truncate(name string, most int) string {
	for len(name) > most {
		_, last := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-last]
	}
	return name
}
