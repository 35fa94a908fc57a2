package ingress

import (
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxFileName is how long a file name may be, in bytes: what file systems take.
const maxFileName = 255

// Disposition sets Content-Disposition, as a gateway of IPFS does: ?filename=
// names the file, and ?download=true asks to save it instead of showing it.
// Otherwise the answer has the fallback name of the handler, or nothing.
func Disposition(header http.Header, query url.Values, fallback string, download bool) {
	name := fileName(query.Get("filename"))
	if name == "" {
		name = fallback
	}
	download = download || query.Get("download") == "true"
	if name == "" && !download {
		return
	}
	header.Set("Content-Disposition", disposition(name, download))
}

// disposition writes the header (RFC 6266): a name in ASCII for the oldest
// clients, and the whole one (RFC 8187) if that is not the same.
func disposition(name string, download bool) string {
	kind := "inline"
	if download {
		kind = "attachment"
	}
	if name == "" {
		return kind
	}
	plain := strings.Map(func(c rune) rune {
		if c >= utf8.RuneSelf || c == '"' || c == '\\' || c == '%' {
			return '_'
		}
		return c
	}, name)
	text := kind + `; filename="` + plain + `"`
	if plain != name {
		text += "; filename*=UTF-8''" + encodeExtValue(name)
	}
	return text
}

// encodeExtValue escapes all but the attr-char of RFC 8187.
func encodeExtValue(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("!#$&+-.^_`|~", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.WriteString("%" + string("0123456789ABCDEF"[c>>4]) + string("0123456789ABCDEF"[c&15]))
	}
	return b.String()
}

// fileName is a name without anything that leads out of a folder, or of a
// header.
func fileName(name string) string {
	if at := strings.LastIndexAny(name, `/\`); at >= 0 {
		name = name[at+1:]
	}
	name = strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) || c == utf8.RuneError {
			return -1
		}
		return c
	}, name)
	for len(name) > maxFileName {
		_, size := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-size]
	}
	if strings.Trim(name, ". ") == "" {
		return ""
	}
	return name
}
