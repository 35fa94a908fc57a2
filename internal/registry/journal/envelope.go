package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"strings"

	"micronode/internal/disk"
)

// Checkpoints, tiles and the prune note are files of one shape: who wrote them
// was either done or is not there, and a file that a power cut left half-written
// does not pass for one.
//
//	magic 4, number 8, level 4, two lengths 4 each, crc32c of all the rest 4,
//	the two parts
const envelopeHeader = 28

// What an envelope holds: its magic.
const (
	holdsCheckpoint = "MNC\x01"
	holdsTile       = "MNT\x01"
	holdsPrune      = "MNP\x01"
)

// envelope is one such file.
type envelope struct {
	magic  string
	number uint64
	level  uint32
	a, b   []byte
}

// encode makes the bytes of the file.
func (e envelope) encode() []byte {
	le := binary.LittleEndian
	to := make([]byte, 0, envelopeHeader+len(e.a)+len(e.b))
	to = append(to, e.magic...)
	to = le.AppendUint64(to, e.number)
	to = le.AppendUint32(to, e.level)
	to = le.AppendUint32(to, uint32(len(e.a)))
	to = le.AppendUint32(to, uint32(len(e.b)))
	to = le.AppendUint32(to, 0)
	to = append(append(to, e.a...), e.b...)
	le.PutUint32(to[24:], envelopeSum(to))
	return to
}

// envelopeSum covers everything but itself.
func envelopeSum(b []byte) uint32 {
	return crc32.Update(checksum(b[:24]), castagnoli, b[envelopeHeader:])
}

// open reads the two parts back. Magic, number and level must be what the
// caller expects.
func (e envelope) open(b []byte) (envelope, error) {
	le := binary.LittleEndian
	if len(b) < envelopeHeader || string(b[:4]) != e.magic || le.Uint32(b[24:]) != envelopeSum(b) {
		return envelope{}, errors.New("the checksum is wrong")
	}
	long := int64(le.Uint32(b[16:]))
	if long+int64(le.Uint32(b[20:])) != int64(len(b)-envelopeHeader) {
		return envelope{}, errors.New("the lengths are wrong")
	}
	if e.number != anyNumber && (le.Uint64(b[4:]) != e.number || le.Uint32(b[12:]) != e.level) {
		return envelope{}, errors.New("it is another one")
	}
	e.number, e.a, e.b = le.Uint64(b[4:]), b[envelopeHeader:envelopeHeader+long:envelopeHeader+long], b[envelopeHeader+long:]
	return e, nil
}

// anyNumber is for what has no number in its name.
const anyNumber = 1<<64 - 1

// temporary is the end of the names of files that are being written.
const temporary = ".tmp"

// load reads an envelope. What is wrong with one that is there is a *Damage.
func (f *Files) load(name string, want envelope) (envelope, error) {
	file, err := f.fs.Open(name, disk.ForReading)
	if err != nil {
		return envelope{}, err
	}
	b, err := readAll(file)
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return envelope{}, err
	}
	e, err := want.open(b)
	if err != nil {
		return envelope{}, &Damage{File: name, Version: want.number, Detail: err.Error()}
	}
	return e, nil
}

// save writes an envelope beside and renames it, so that a reader sees the old
// one or the new one. With lasting it waits until the disk has it.
func (f *Files) save(name string, e envelope, lasting bool) error {
	beside := fmt.Sprintf("%s.%d%s", name, f.written.Add(1), temporary)
	err := f.write(beside, e.encode(), lasting)
	if err == nil {
		err = f.fs.Rename(beside, name)
	}
	if err != nil {
		_ = f.fs.Remove(beside)
		return err
	}
	if !lasting {
		return nil
	}
	return f.fs.SyncFolder(filepath.Dir(name))
}

// write makes a file.
func (f *Files) write(name string, b []byte, lasting bool) error {
	file, err := f.fs.Open(name, disk.Anew)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(b, 0)
	if err == nil && lasting {
		err = file.Sync()
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	return err
}

// tidy removes what was being written when a process ended.
func (f *Files) tidy(folder string) error {
	entries, err := f.fs.List(folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name, temporary) {
			if err := f.fs.Remove(filepath.Join(folder, e.Name)); err != nil && !disk.IsAbsent(err) {
				return err
			}
		}
	}
	return nil
}
