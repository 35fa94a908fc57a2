package keyfile

import (
	"crypto/ed25519"
	"errors"
	"io"
	"io/fs"
	"os"

	"micronode/fault"
)

// PublicSuffix is what the file with the public key has behind its name.
const PublicSuffix = ".pub"

// Write makes the two files of a key: path, with what [Seal] or [Plain] made of
// it, readable by its owner only, and path.pub. If one of them is there already
// nothing is written: Conflict.
func Write(path string, private []byte, public ed25519.PublicKey) error {
	const op = "keyfile.write"
	if err := create(path+PublicSuffix, []byte(FormatPublic(public)+"\n"), 0o644); err != nil {
		return unwritten(op, path+PublicSuffix, err)
	}
	if err := create(path, private, 0o600); err != nil {
		return errors.Join(unwritten(op, path, err), os.Remove(path+PublicSuffix))
	}
	return nil
}

// create writes a new file, whole or not at all.
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

// Read opens the key in a file.
func Read(path string, passphrase func() (string, error)) (ed25519.PrivateKey, error) {
	data, err := read(path)
	if err != nil {
		return nil, unread("keyfile.read", path, err)
	}
	return Open(data, passphrase)
}

// ReadPublic reads the public key in a file.
func ReadPublic(path string) (ed25519.PublicKey, error) {
	data, err := read(path)
	if err != nil {
		return nil, unread("keyfile.read public", path, err)
	}
	return ParsePublic(string(data))
}

// read reads no more of a file than a key can have, and one byte to tell.
func read(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return io.ReadAll(io.LimitReader(file, maxFile+1))
}

func unwritten(op, path string, err error) error {
	e := &fault.Error{Op: op, Kind: kindOf(err), Detail: path + " cannot be written", Err: err,
		Next: "Look at where it goes to, then try again."}
	if e.Kind == fault.Conflict {
		e.Detail, e.Next = path+" is there already", "Choose another file. A key is never replaced."
	}
	return e
}

func unread(op, path string, err error) error {
	return &fault.Error{Op: op, Kind: kindOf(err), Detail: path + " cannot be read", Err: err,
		Next: "Look whether it is there and whether you may read it."}
}

// kindOf is the kind of an error of the file system.
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
