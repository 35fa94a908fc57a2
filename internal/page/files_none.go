//go:build noui || slim

package page

import "io/fs"

// files is nil: the page was left out of this binary.
func files() fs.FS { return nil }
