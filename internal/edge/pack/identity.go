package pack

import (
	"encoding/binary"
	"encoding/hex"
	"io/fs"

	"golang.org/x/sys/unix"

	"micronode/b3"
)

// identity tells one content of a file from another without reading it. Linux
// moves the time of modification before the first changed byte can be read, so
// whoever reads first and compares afterwards never takes new bytes for old.
type identity struct {
	device, inode uint64
	size          int64
	modified      int64 // nanoseconds since 1970
}

// version is a name for the content: equal for equal identities, and it tells
// strangers nothing about the disk.
func (i identity) version() string {
	packed := []byte("micronode pack version\x00")
	for _, part := range []uint64{i.device, i.inode, uint64(i.size), uint64(i.modified)} {
		packed = binary.BigEndian.AppendUint64(packed, part)
	}
	sum := b3.Of(packed)
	return hex.EncodeToString(sum[:])
}

// look is everything about a file that makes it worth another try.
type look struct {
	identity
	changed int64       // when mode, owner or links were last changed
	beside  [2]identity // the live journals of a database, zero if there are none
}

// content is what has to be equal for a mounted version to stay.
func (l look) content() look {
	l.changed = 0
	return l
}

// journals are what SQLite keeps beside a database that is being written to.
var journals = [2]string{"-wal", "-journal"}

// lookAt looks at a file and, if it is a database, at its journals.
func lookAt(path string, of kind) (look, error) {
	var st unix.Stat_t
	if err := stat(path, &st); err != nil {
		return look{}, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return look{}, errNotAFile
	}
	l := look{identity: identityOf(&st), changed: st.Ctim.Nano()}
	if of == mbtilesKind {
		for i, suffix := range journals {
			if stat(path+suffix, &st) == nil {
				l.beside[i] = identityOf(&st)
			}
		}
	}
	return l, nil
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

// identityOfOpen looks at an open file. It allocates nothing, because every
// read of a tile ends with it.
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
