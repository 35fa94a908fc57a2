//go:build !unix

package capability

import (
	"io"
	"os"
)

// openInherited reads a handle that this process was started with. Nothing
// bounds how long its writer takes.
func openInherited(handle uintptr) io.ReadCloser { return os.NewFile(handle, "inherited") }
