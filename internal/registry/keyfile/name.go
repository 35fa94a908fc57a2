package keyfile

import (
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// maxName is the maximum length of a signer's name in bytes.
const maxName = 64

// suffixes are file name endings that are not part of the signer's name.
var suffixes = []string{PublicSuffix, ".key", ".age", ".pem", ".txt"}

// SignerName derives the name of a signer from that of the key file: without
// its endings, in the grammar of ids. alice.key.pub is alice. The path need not
// exist.
func SignerName(path string) string {
	name := strings.ToLower(filepath.Base(path))
	for slices.Contains(suffixes, filepath.Ext(name)) {
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
	name = truncate(norm.NFC.String(name), maxName)
	if strings.Trim(name, "./-") == "" {
		return "signer"
	}
	return name
}

// truncate shortens a name to a number of bytes, and leaves its characters whole.
func truncate(name string, most int) string {
	for len(name) > most {
		_, last := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-last]
	}
	return name
}
