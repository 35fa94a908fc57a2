//go:build !noui && !slim

package page

import (
	"embed"
	"io/fs"
)

//go:embed all:dist
var embedded embed.FS

// files are the built files of the page.
func files() fs.FS {
	dist, err := fs.Sub(embedded, "dist")
	if err != nil {
		panic("page: " + err.Error()) // the name is a constant
	}
	return dist
}
