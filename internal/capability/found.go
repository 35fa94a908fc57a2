package capability

import (
	"encoding/base64"
	"strings"
)

// Found reports whether a text that is about to leave the node contains a
// token, or something that begins like one: as it is, percent-encoded a few
// times, or in base64, as the password of Basic is. The prefix is ours, so
// what follows it is not looked at closely; but a name that only ends with the
// same letters, such as column1_x, is not a token.
func Found(text string) bool {
	for range maxEncodings {
		if hasToken(text) || hasEncodedToken(text) {
			return true
		}
		decoded := percentDecode(text)
		if decoded == text {
			return false
		}
		text = decoded
	}
	return hasToken(text)
}

// maxEncodings is how often a text is percent-decoded. Each server on the way
// may do it once.
const maxEncodings = 4

// firstBytes is what follows the prefix in every token: the version of the
// format and the length of the identifier.
const firstBytes = "AgI"

// hasToken looks for a token as it is written.
func hasToken(text string) bool {
	for {
		before, after, found := strings.Cut(text, Prefix)
		switch {
		case !found:
			return false
		case strings.HasPrefix(after, firstBytes):
			return true
		case after != "" && isBase64(after[0]) && (before == "" || !isAlphanumeric(before[len(before)-1])):
			return true
		}
		text = after
	}
}

// encodedPrefixes are the characters of base64 that the prefix alone decides,
// by its place in the group of three bytes.
var encodedPrefixes = [3]string{"bW4xX", "1uMV", "tbjFf"}

// hasEncodedToken looks for a token in every run of base64 characters that may
// contain the prefix. A run may begin with what does not belong to it, so it is
// decoded from each of the first four characters on.
func hasEncodedToken(text string) bool {
	for len(text) > 0 {
		end := 0
		for end < len(text) && isBase64(text[end]) {
			end++
		}
		if run := text[:end]; mayEncodeToken(run) {
			run = strings.NewReplacer("-", "+", "_", "/").Replace(run)
			for skip := range min(4, len(run)) {
				if decoded, _ := base64.RawStdEncoding.DecodeString(run[skip:]); hasToken(string(decoded)) { // what comes before an odd end is decoded all the same
					return true
				}
			}
		}
		text = text[min(end+1, len(text)):]
	}
	return false
}

func mayEncodeToken(run string) bool {
	for _, prefix := range encodedPrefixes {
		if strings.Contains(run, prefix) {
			return true
		}
	}
	return false
}

// percentDecode decodes what is encoded validly and leaves the rest as it is.
func percentDecode(text string) string {
	if !strings.Contains(text, "%") {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			high, low := strings.IndexByte(hexDigits, text[i+1]|0x20), strings.IndexByte(hexDigits, text[i+2]|0x20)
			if high >= 0 && low >= 0 {
				b.WriteByte(byte(high<<4 | low))
				i += 2
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

const hexDigits = "0123456789abcdef"

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// isBase64 reports whether a byte is a character of either alphabet.
func isBase64(c byte) bool {
	return isAlphanumeric(c) || c == '-' || c == '_' || c == '+' || c == '/'
}
