package disk

import "io/fs"

// Stamp is what a system says of a file that changes with its content. Two
// equal stamps are of the same file with the same content, as far as anybody
// can tell who has not read it. Linux moves the time of modification before the
// first changed byte can be read, so a reader that compares after each read
// never takes new bytes for old.
type Stamp struct {
	Device, Inode uint64 // zero where the system does not say
	Size          int64
	Modified      int64       // nanoseconds since 1970
	Changed       int64       // when mode, owner or links last changed; zero where the system does not say
	Type          fs.FileMode // zero for a file, fs.ModeDir for a folder, another type for anything else
}
