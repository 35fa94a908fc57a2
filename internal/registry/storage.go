package registry

import "micronode/internal/registry/journal"

// InMemory returns a journal in memory, which is gone when the node stops.
func (s Storage) InMemory() Journal {
	return journal.NewRAM(journal.RAMSpec{MaxBytes: int64(s.RAMBytes)})
}

// InFolder returns a journal in files. The folder is used by the registry only.
func (s Storage) InFolder(folder string) (Journal, error) {
	files, err := journal.OpenFiles(journal.FilesSpec{Folder: folder})
	if err != nil {
		return nil, err // not an interface that holds a nil pointer
	}
	return files, nil
}
