package registry

import "micronode/internal/registry/journal"

// InMemory is a log that is gone when the node stops.
func (s Storage) InMemory() Journal {
	return journal.NewRAM(journal.RAMSpec{MaxBytes: int64(s.RAMBytes)})
}

// InFolder is a log in files. The folder is the registry's own.
func (s Storage) InFolder(folder string) (Journal, error) {
	files, err := journal.OpenFiles(journal.FilesSpec{Folder: folder})
	if err != nil {
		return nil, err // not an interface around nothing
	}
	return files, nil
}
