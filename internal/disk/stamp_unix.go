//go:build unix

package disk

import (
	"io/fs"
	"syscall"
)

// StampOf is the stamp of a file by what Stat returned.
func StampOf(info fs.FileInfo) Stamp {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stampOf(stat)
	}
	return Stamp{Size: info.Size(), Modified: info.ModTime().UnixNano(), Type: info.Mode().Type()}
}

// StampOfPath follows links, as opening does.
func StampOfPath(path string) (Stamp, error) {
	var stat syscall.Stat_t
	for {
		switch err := syscall.Stat(path, &stat); err {
		case nil:
			return stampOf(&stat), nil
		case syscall.EINTR:
		default:
			return Stamp{}, &fs.PathError{Op: "stat", Path: path, Err: err}
		}
	}
}

// StampOfHandle is the stamp of an open file, by what its Fd returned. It
// allocates nothing.
func StampOfHandle(handle uintptr) (Stamp, error) {
	var stat syscall.Stat_t
	for {
		switch err := syscall.Fstat(int(handle), &stat); err {
		case nil:
			return stampOf(&stat), nil
		case syscall.EINTR:
		default:
			return Stamp{}, err
		}
	}
}

func stampOf(stat *syscall.Stat_t) Stamp {
	s := Stamp{Device: uint64(stat.Dev), Inode: uint64(stat.Ino), Size: stat.Size}
	s.Modified, s.Changed = timesOf(stat)
	switch stat.Mode & syscall.S_IFMT {
	case syscall.S_IFREG:
	case syscall.S_IFDIR:
		s.Type = fs.ModeDir
	default:
		s.Type = fs.ModeIrregular
	}
	return s
}

// Owner is the user whom a file belongs to.
func Owner(info fs.FileInfo) (uid uint32, known bool) {
	stat, known := info.Sys().(*syscall.Stat_t)
	if !known {
		return 0, false
	}
	return stat.Uid, true
}
