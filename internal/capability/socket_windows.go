package capability

import (
	"os"
	"path/filepath"
)

const maxSocketName = 107 // the kernel's limit

func protectSocket(uintptr) error { return nil }

// protectSocketFile leaves the access list as the folder gives it, which for
// the folder for temporary files is the user's own. Who connects is asked for
// the user all the same.
func protectSocketFile(string) error { return nil }

// openToLock opens a file of its own: folders cannot be locked.
func openToLock(folder string) (*os.File, error) {
	return os.OpenFile(filepath.Join(folder, "micronode.lock"), os.O_CREATE|os.O_RDWR, 0o600)
}
