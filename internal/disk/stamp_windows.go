package disk

import (
	"io/fs"
	"syscall"

	"golang.org/x/sys/windows"
)

// StampOf is the stamp of a file by what Stat returned, which has no number of
// the file: its time of creation stands for that.
func StampOf(info fs.FileInfo) Stamp {
	s := Stamp{Size: info.Size(), Modified: info.ModTime().UnixNano(), Type: info.Mode().Type()}
	if data, ok := info.Sys().(*syscall.Win32FileAttributeData); ok {
		s.Changed = data.CreationTime.Nanoseconds()
	}
	return s
}

// StampOfPath follows links, as opening does.
func StampOfPath(path string) (Stamp, error) {
	failed := func(err error) (Stamp, error) { return Stamp{}, &fs.PathError{Op: "stat", Path: path, Err: err} }
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return failed(err)
	}
	const share = windows.FILE_SHARE_READ | windows.FILE_SHARE_WRITE | windows.FILE_SHARE_DELETE
	handle, err := windows.CreateFile(name, windows.FILE_READ_ATTRIBUTES, share, nil, windows.OPEN_EXISTING, windows.FILE_FLAG_BACKUP_SEMANTICS, 0)
	if err != nil {
		return failed(err)
	}
	defer func() { _ = windows.CloseHandle(handle) }() // nothing was written
	s, err := StampOfHandle(uintptr(handle))
	if err != nil {
		return failed(err)
	}
	return s, nil
}

// StampOfHandle is the stamp of an open file, by what its Fd returned.
func StampOfHandle(handle uintptr) (Stamp, error) {
	var info windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(windows.Handle(handle), &info); err != nil {
		return Stamp{}, err
	}
	s := Stamp{Device: uint64(info.VolumeSerialNumber), Inode: uint64(info.FileIndexHigh)<<32 | uint64(info.FileIndexLow),
		Size: int64(info.FileSizeHigh)<<32 | int64(info.FileSizeLow), Modified: info.LastWriteTime.Nanoseconds(), Changed: info.CreationTime.Nanoseconds()}
	if info.FileAttributes&windows.FILE_ATTRIBUTE_DIRECTORY != 0 {
		s.Type = fs.ModeDir
	}
	return s, nil
}

// Owner is unknown: Windows has no numbers of users, and who may read a file is
// in its access list.
func Owner(fs.FileInfo) (uid uint32, known bool) { return 0, false }
