package capability

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

// Windows has no numbers of users. Here our own user is 0, and another one is
// an error.
const own = 0

// ownUID is the user whose node this is.
func ownUID() uint32 { return own }

// peerUID asks which process is at the other end, and whose it is. Whatever
// cannot be found out is another user.
func peerUID(fd uintptr) (uint32, error) {
	const getPeerPID = 0x58000100 // SIO_AF_UNIX_GETPEERPID
	var pid, n uint32
	err := windows.WSAIoctl(windows.Handle(fd), getPeerPID, nil, 0, (*byte)(unsafe.Pointer(&pid)), uint32(unsafe.Sizeof(pid)), &n, nil, 0)
	if err != nil {
		return 0, os.NewSyscallError("WSAIoctl", err)
	}
	process, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, pid)
	if err != nil {
		return 0, os.NewSyscallError("OpenProcess", err)
	}
	defer func() { _ = windows.CloseHandle(process) }() // it was only asked
	var token windows.Token
	if err := windows.OpenProcessToken(process, windows.TOKEN_QUERY, &token); err != nil {
		return 0, os.NewSyscallError("OpenProcessToken", err)
	}
	defer func() { _ = token.Close() }() // it was only asked
	theirs, err := token.GetTokenUser()
	if err != nil {
		return 0, os.NewSyscallError("GetTokenUser", err)
	}
	ours, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return 0, os.NewSyscallError("GetTokenUser", err)
	}
	if !theirs.User.Sid.Equals(ours.User.Sid) {
		return 0, errors.New("the process belongs to another user")
	}
	return own, nil
}

// canTellGroups says that no groups are asked for.
const canTellGroups = false

func peerGroups(uintptr) ([]uint32, error) { return nil, errors.New("no groups are asked for") }

func overflowGroup() uint32 { return own }
