package amnesia

import (
	"errors"
	"math"
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

// noLimit is the limit that is none.
const noLimit = math.MaxUint64

// reserve takes addresses that nobody may touch yet.
func reserve(size int) ([]byte, error) {
	address, err := windows.VirtualAlloc(0, uintptr(size), windows.MEM_RESERVE, windows.PAGE_NOACCESS)
	if err != nil {
		return nil, os.NewSyscallError("VirtualAlloc", err)
	}
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&address))), size), nil
}

// open makes a part of what was reserved usable.
func open(memory []byte) error {
	_, err := windows.VirtualAlloc(uintptr(unsafe.Pointer(unsafe.SliceData(memory))), uintptr(len(memory)), windows.MEM_COMMIT, windows.PAGE_READWRITE)
	return os.NewSyscallError("VirtualAlloc", err)
}

// release gives back what was reserved.
func release(whole []byte) error {
	return os.NewSyscallError("VirtualFree", windows.VirtualFree(uintptr(unsafe.Pointer(unsafe.SliceData(whole))), 0, windows.MEM_RELEASE))
}

// lock keeps pages in RAM. Without a larger working set the system grants a few
// hundred kilobytes, which is more than secrets take.
func lock(memory []byte) error {
	return os.NewSyscallError("VirtualLock", windows.VirtualLock(uintptr(unsafe.Pointer(unsafe.SliceData(memory))), uintptr(len(memory))))
}

// lockLimit is the least that a process may keep in RAM, of which a part can be
// locked.
func lockLimit() uint64 {
	var least, most uintptr
	var flags uint32
	windows.GetProcessWorkingSetSizeEx(windows.CurrentProcess(), &least, &most, &flags)
	return uint64(least)
}

// excludeFromDumps has no call here: error reports are off as a whole.
func excludeFromDumps([]byte) {}

// disableCoreDumps keeps the system from reporting a crash with a dump. A
// debugger of the same user can still read the memory of the process.
func disableCoreDumps() error {
	windows.SetErrorMode(windows.SEM_FAILCRITICALERRORS | windows.SEM_NOGPFAULTERRORBOX)
	return nil
}

// createUnnamed and makePipe: Windows has neither in folders.
func createUnnamed(string) error { return errors.ErrUnsupported }

func makePipe(string) error { return errors.ErrUnsupported }
