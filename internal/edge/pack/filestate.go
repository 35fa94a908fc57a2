package pack

import (
	"encoding/binary"
	"encoding/hex"
	"io/fs"

	"golang.org/x/sys/unix"

	"micronode/b3"
)

// identity distinguishes two contents of a file without reading it. Linux moves
// the time of modification before the first changed byte can be read, so a
// reader that compares after each read never takes new bytes for old.
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
	var st unix.Stat_t
	if err := stat(path, &st); err != nil {
		return fileState{}, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fileState{}, errNotAFile
	}
	state := fileState{identity: identityOf(&st), changed: st.Ctim.Nano()}
	if of == mbtilesKind {
		for i, suffix := range journals {
			if stat(path+suffix, &st) == nil {
				state.journals[i] = identityOf(&st)
			}
		}
	}
	return state, nil
}

func identityOf(st *unix.Stat_t) identity {
	return identity{device: uint64(st.Dev), inode: st.Ino, size: st.Size, modified: st.Mtim.Nano()}
}

// stat follows links, as opening does.
func stat(path string, st *unix.Stat_t) error {
	for {
		err := unix.Stat(path, st)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return &fs.PathError{Op: "stat", Path: path, Err: err}
		}
		return nil
	}
}

// identityOfOpen stats an open file. It allocates nothing, because every read
// of a tile ends with it.
func identityOfOpen(descriptor int) (identity, error) {
	var st unix.Stat_t
	for {
		err := unix.Fstat(descriptor, &st)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return identity{}, err
		}
		return identityOf(&st), nil
	}
}
