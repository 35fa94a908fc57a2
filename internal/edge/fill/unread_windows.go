package fill

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

// fionread asks a socket how many bytes it holds.
const fionread = 0x4004667f

// socketHasUnread reports whether bytes or an error wait in a socket. An end is
// not seen: the request fails, and is sent again over another connection.
func socketHasUnread(handle uintptr) bool {
	var size, returned uint32
	err := windows.WSAIoctl(windows.Handle(handle), fionread, nil, 0, (*byte)(unsafe.Pointer(&size)), uint32(unsafe.Sizeof(size)), &returned, nil, 0)
	return err != nil || size > 0
}
