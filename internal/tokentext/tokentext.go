// Package tokentext recognises the node's own tokens in texts: in what is about
// to leave the node, and in what is about to be logged.
//
// The prefix is ours, so what follows it is not looked at closely. Tokens are
// recognised as they are, percent-encoded a few times, or in base64, as the
// password of Basic is. The package does not know what a token allows, nor
// whether it is valid.
package tokentext

import (
	"encoding/base64"
	"strings"
)

// Prefix is what every token begins with.
const Prefix = "mn1_"

// Redacted replaces a token.
const Redacted = Prefix + "[redacted]"

// Found reports whether a text contains a token, or something that begins like
// one. A name that only ends with the same letters, such as column1_x, is not a
// token.
func Found(text string) bool {
	found := false
	look(text, func(int, int, []int) bool {
		found = true
		return false
	})
	return found
}

// Redact replaces every token in a text. Of a token in base64 it removes all
// that follows in the same run of characters.
func Redact(text string) string {
	var cut []bool // which bytes of the text belong to a token
	look(text, func(from, to int, origin []int) bool {
		if cut == nil {
			cut = make([]bool, len(text))
		}
		if origin != nil {
			from, to = origin[from], origin[to]
		}
		for i := from; i < to; i++ {
			cut[i] = true
		}
		return true
	})
	if cut == nil {
		return text
	}
	var b strings.Builder
	for i := range len(text) {
		switch {
		case !cut[i]:
			b.WriteByte(text[i])
		case i == 0 || !cut[i-1]:
			b.WriteString(Redacted)
		}
	}
	return b.String()
}

// maxEncodings is how often a text is percent-decoded. Each server on the way
// may do it once.
const maxEncodings = 4

// look calls found for every token, until it returns false: where the token is
// in the decoded text, and where each byte of that, and its end, is in the text
// itself; nil if nothing was decoded. Most texts are looked at without memory
// being taken.
func look(text string, found func(from, to int, origin []int) bool) {
	var origin []int
	for level := 0; ; level++ {
		more := func(from, to int) bool { return found(from, to, origin) }
		decoded, next := text, origin
		if level < maxEncodings {
			decoded, next = percentDecode(text, origin)
		}
		last := len(decoded) == len(text)
		if !plainTokens(text, last, more) || !encodedTokens(text, more) || last {
			return
		}
		text, origin = decoded, next
	}
}

// firstBytes is what follows the prefix in every token: the version of the
// format and the length of the identifier.
const firstBytes = "AgI"

// plainTokens finds tokens as they are written. What is still percent-encoded
// in one belongs to it if nothing will decode it.
func plainTokens(text string, last bool, found func(from, to int) bool) bool {
	for at := 0; ; {
		next := strings.Index(text[at:], Prefix)
		if next < 0 {
			return true
		}
		from := at + next
		at = from + len(Prefix)
		after := text[at:]
		if !strings.HasPrefix(after, firstBytes) &&
			(after == "" || !isBase64(after[0]) || from > 0 && isAlphanumeric(text[from-1])) {
			continue
		}
		for at < len(text) && (isTokenByte(text[at]) || last && text[at] == '%') {
			at++
		}
		if !found(from, at) {
			return false
		}
	}
}

// encodedPrefixes are the characters of base64 that the prefix alone decides,
// by its place in the group of three bytes.
var encodedPrefixes = [3]string{"bW4xX", "1uMV", "tbjFf"}

// toStandard turns the alphabet of URLs into the other one.
var toStandard = strings.NewReplacer("-", "+", "_", "/")

// encodedTokens finds tokens in every run of base64 characters that may contain
// the prefix. A run may begin with what does not belong to it, so it is decoded
// from each of the first four characters on.
func encodedTokens(text string, found func(from, to int) bool) bool {
	for start := 0; start < len(text); start++ {
		end := start
		for end < len(text) && isBase64(text[end]) {
			end++
		}
		if run := text[start:end]; mayEncodeToken(run) {
			run = toStandard.Replace(run)
			for skip := range min(4, len(run)) {
				decoded, _ := base64.RawStdEncoding.DecodeString(run[skip:]) // what comes before an odd end is decoded all the same
				if !plainTokens(string(decoded), false, func(from, _ int) bool {
					return found(start+skip+from*4/3, end)
				}) {
					return false
				}
			}
		}
		start = end
	}
	return true
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
// It also returns where each byte of the result, and its end, is in the text
// that origin is about.
func percentDecode(text string, origin []int) (decoded string, at []int) {
	if !strings.Contains(text, "%") {
		return text, origin
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if origin == nil {
			at = append(at, i)
		} else {
			at = append(at, origin[i])
		}
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
	end := len(text)
	if origin != nil {
		end = origin[end]
	}
	return b.String(), append(at, end)
}

const hexDigits = "0123456789abcdef"

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// isTokenByte reports whether a byte may be part of a token.
func isTokenByte(c byte) bool { return isAlphanumeric(c) || c == '-' || c == '_' }

// isBase64 reports whether a byte is a character of either alphabet.
func isBase64(c byte) bool { return isTokenByte(c) || c == '+' || c == '/' }
