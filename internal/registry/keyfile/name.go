package keyfile

import (
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// maxName is how many bytes the name of a signer may have.
const maxName = 64

// endings say what a file is, not whose.
var endings = []string{PublicSuffix, ".key", ".age", ".pem", ".txt"}

// SignerName proposes the name of a signer: that of the key file without its
// endings, spelled as ids are. alice.key.pub is alice. The path need not exist.
func SignerName(path string) string {
	name := strings.ToLower(filepath.Base(path))
	for slices.Contains(endings, filepath.Ext(name)) {
		name = strings.TrimSuffix(name, filepath.Ext(name))
	}
	name = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return '-'
		case !unicode.IsGraphic(r), r == utf8.RuneError:
			return -1
		}
		return r
	}, name)
	name = cut(norm.NFC.String(name), maxName)
	if strings.Trim(name, "./-") == "" {
		return "signer"
	}
	return name
}

// cut shortens a name to a number of bytes, and leaves its characters whole.
func cut(name string, most int) string {
	for len(name) > most {
		_, last := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-last]
	}
	return name
}
