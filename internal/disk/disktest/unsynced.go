package disktest

import "micronode/internal/disk"

// Unsynced is the real disk without its syncs: for tests that write many files
// and whose subject is not what survives a power cut.
func Unsynced() disk.FS { return unsynced{disk.OS()} }

type unsynced struct{ disk.FS }

func (u unsynced) Open(name string, mode disk.Mode) (disk.File, error) {
	f, err := u.FS.Open(name, mode)
	if err != nil {
		return nil, err
	}
	return unsyncedFile{f}, nil
}

func (unsynced) SyncFolder(string) error { return nil }

type unsyncedFile struct{ disk.File }

func (unsyncedFile) Sync() error { return nil }
