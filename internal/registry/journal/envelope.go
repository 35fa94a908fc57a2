package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"micronode/internal/disk"
	"micronode/internal/wal"
)

// Checkpoints, tiles and the prune note are files of one format. A file is
// either complete or absent, and one that a power cut left half-written fails
// its checksum.
//
//	magic 4, number 8, level 4, two lengths 4 each, crc32c of all the rest 4,
//	the two parts
const envelopeHeader = 28

// The magic numbers of envelopes, by content.
const (
	magicCheckpoint = "MNC\x01"
	magicTile       = "MNT\x01"
	magicPrune      = "MNP\x01"
)

// envelope is one such file.
type envelope struct {
	magic         string
	number        uint64
	level         uint32
	first, second []byte
}

// encode makes the bytes of the file.
func (e envelope) encode() []byte {
	le := binary.LittleEndian
	to := make([]byte, 0, envelopeHeader+len(e.first)+len(e.second))
	to = append(to, e.magic...)
	to = le.AppendUint64(to, e.number)
	to = le.AppendUint32(to, e.level)
	to = le.AppendUint32(to, uint32(len(e.first)))
	to = le.AppendUint32(to, uint32(len(e.second)))
	to = le.AppendUint32(to, 0)
	to = append(append(to, e.first...), e.second...)
	le.PutUint32(to[24:], envelopeSum(to))
	return to
}

// envelopeSum covers everything but itself.
func envelopeSum(b []byte) uint32 { return wal.Checksum(b[:24], b[envelopeHeader:]) }

// decode reads the two parts back. Magic, number and level must be what the
// caller expects.
func (e envelope) decode(b []byte) (envelope, error) {
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
	e.number, e.first, e.second = le.Uint64(b[4:]), b[envelopeHeader:envelopeHeader+long:envelopeHeader+long], b[envelopeHeader+long:]
	return e, nil
}

// anyNumber is the number of an envelope that has none in its name.
const anyNumber = 1<<64 - 1

// tmpSuffix ends the names of files that are being written.
const tmpSuffix = ".tmp"

// loadEnvelope reads an envelope. An invalid one is a *Damage.
func (f *Files) loadEnvelope(name string, want envelope) (envelope, error) {
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
	e, err := want.decode(b)
	if err != nil {
		return envelope{}, &Damage{File: name, Version: want.number, Detail: err.Error()}
	}
	return e, nil
}

// saveEnvelope writes an envelope, so that a reader sees the old one or the new
// one. If durable it waits until the disk has it.
func (f *Files) saveEnvelope(name string, e envelope, durable bool) error {
	if err := f.replaceFile(name, e.encode(), durable); err != nil || !durable {
		return err
	}
	return f.fs.SyncFolder(filepath.Dir(name))
}

// replaceFile writes a temporary file and renames it. If durable the disk has
// its bytes; it has the name when the folder is synced.
func (f *Files) replaceFile(name string, b []byte, durable bool) error {
	tmp := fmt.Sprintf("%s.%d%s", name, f.tmpCounter.Add(1), tmpSuffix)
	err := f.writeFile(tmp, b, durable)
	if err == nil {
		err = f.fs.Rename(tmp, name)
	}
	if err != nil {
		_ = f.fs.Remove(tmp)
	}
	return err
}

// writeFile creates a file.
func (f *Files) writeFile(name string, b []byte, durable bool) error {
	file, err := f.fs.Open(name, disk.Create)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(b, 0)
	if err == nil && durable {
		err = file.Sync()
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	return err
}

// removeTemporary removes files that were being written when a process ended.
func (f *Files) removeTemporary(folder string) error {
	entries, err := f.fs.List(folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name, tmpSuffix) {
			if err := f.fs.Remove(filepath.Join(folder, e.Name)); err != nil && !disk.IsNotExist(err) {
				return err
			}
		}
	}
	return nil
}
