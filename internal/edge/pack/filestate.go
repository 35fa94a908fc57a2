package pack

import (
	"encoding/binary"
	"encoding/hex"

	"micronode/b3"
	"micronode/internal/disk"
)

// identity distinguishes two contents of a file without reading it.
type identity struct {
	device, inode uint64
	size          int64
	modified      int64 // nanoseconds since 1970
}

// version is a name for the content: equal for equal identities, and it reveals
// nothing about the disk.
func (i identity) version() string {
	packed := []byte("micronode pack version\x00")
	for _, part := range []uint64{i.device, i.inode, uint64(i.size), uint64(i.modified)} {
		packed = binary.BigEndian.AppendUint64(packed, part)
	}
	sum := b3.Of(packed)
	return hex.EncodeToString(sum[:])
}

// fileState is everything about a file whose change makes another try
// worthwhile.
type fileState struct {
	identity
	changed  int64       // when mode, owner or links last changed
	journals [2]identity // the live journals of a database, zero if there are none
}

// withoutChangeTime is what has to be equal for a mounted version to stay.
func (f fileState) withoutChangeTime() fileState {
	f.changed = 0
	return f
}

// journals are the suffixes of SQLite's journals of a database that is being
// written to.
var journals = [2]string{"-wal", "-journal"}

// statFile stats a file and, if it is a database, its journals.
func statFile(path string, of kind) (fileState, error) {
	stamp, err := disk.StampOfPath(path)
	if err != nil {
		return fileState{}, err
	}
	if stamp.Type != 0 {
		return fileState{}, errNotAFile
	}
	state := fileState{identity: identityOf(stamp), changed: stamp.Changed}
	if of == mbtilesKind {
		for i, suffix := range journals {
			if journal, err := disk.StampOfPath(path + suffix); err == nil {
				state.journals[i] = identityOf(journal)
			}
		}
	}
	return state, nil
}

func identityOf(s disk.Stamp) identity {
	return identity{device: s.Device, inode: s.Inode, size: s.Size, modified: s.Modified}
}

// identityOfOpen stats an open file. It allocates nothing, because every read
// of a tile ends with it.
func identityOfOpen(descriptor uintptr) (identity, error) {
	stamp, err := disk.StampOfHandle(descriptor)
	return identityOf(stamp), err
}
