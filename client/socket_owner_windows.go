package client

import (
	"errors"
	"math"
	"net"
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

const maxSocketName = 107 // the kernel's limit

// Windows has no numbers of users. Here our own user is 0, and another one is
// an error.
const own = 0

// ownUID is the user whose node is asked.
func ownUID() uint32 { return own }

// ownerOf asks which process is at the other end of the socket, and whose it
// is. Whatever cannot be found out is another user.
func ownerOf(conn *net.UnixConn) (uint32, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return math.MaxUint32, err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = checkOwner(windows.Handle(fd)) }); err != nil {
		return math.MaxUint32, err
	}
	if failed != nil {
		return math.MaxUint32, failed
	}
	return own, nil
}

func checkOwner(socket windows.Handle) error {
	const getPeerPID = 0x58000100 // SIO_AF_UNIX_GETPEERPID
	var pid, n uint32
	err := windows.WSAIoctl(socket, getPeerPID, nil, 0, (*byte)(unsafe.Pointer(&pid)), uint32(unsafe.Sizeof(pid)), &n, nil, 0)
	if err != nil {
		return os.NewSyscallError("WSAIoctl", err)
	}
	process, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, pid)
	if err != nil {
		return os.NewSyscallError("OpenProcess", err)
	}
	defer func() { _ = windows.CloseHandle(process) }() // it was only asked
	var token windows.Token
	if err := windows.OpenProcessToken(process, windows.TOKEN_QUERY, &token); err != nil {
		return os.NewSyscallError("OpenProcessToken", err)
	}
	defer func() { _ = token.Close() }() // it was only asked
	theirs, err := token.GetTokenUser()
	if err != nil {
		return os.NewSyscallError("GetTokenUser", err)
	}
	ours, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return os.NewSyscallError("GetTokenUser", err)
	}
	if !theirs.User.Sid.Equals(ours.User.Sid) {
		return errors.New("the process belongs to another user")
	}
	return nil
}
