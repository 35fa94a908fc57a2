package pack

import (
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

// kind is the format of a pack. The extension of its file decides it.
type kind string

const (
	pmtilesKind kind = "pmtiles"
	mbtilesKind kind = "mbtiles"
	noKind      kind = ""
	folderKind  kind = "folder" // in a status only: a folder that cannot be read
)

func kindOf(file string) kind {
	switch filepath.Ext(file) {
	case ".pmtiles":
		return pmtilesKind
	case ".mbtiles":
		return mbtilesKind
	default:
		return noKind
	}
}

// stemOf is the file name without the extension of its kind.
func stemOf(file string) string {
	return strings.TrimSuffix(file, filepath.Ext(file))
}

// checkName says why a file cannot be mounted under its own name, if so. The
// name appears in URLs, JSON and terminals.
func checkName(file string) error {
	switch {
	case kindOf(file) == noKind:
		return refuseKind(file)
	case stemOf(file) == "":
		return refuseName(file, "there is nothing before the extension")
	case len(file) > maxName:
		return refuseName(file, "it is longer than 128 bytes")
	case !utf8.ValidString(file):
		return refuseName(file, "it is not UTF-8")
	case strings.ContainsFunc(file, unicode.IsControl):
		return refuseName(file, "it has control characters")
	default:
		return nil
	}
}
