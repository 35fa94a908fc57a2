package search

import (
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// maxWord is the maximum length of a word in bytes. A longer one is truncated,
// and found by its beginning.
const maxWord = 128

// EachWord calls yield with every word of a text and its position, until yield
// returns false. A word is letters, digits and their combining marks, in lower
// case and in NFC. In scripts without spaces, each letter is a word: a phrase
// then matches consecutive letters.
//
// Queries and documents are split by this same function.
func EachWord(text string, yield func(word string, start, end int) bool) {
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRuneInString(text[at:])
		if !isWordRune(r) {
			at += size
			continue
		}
		start, plain := at, r < utf8.RuneSelf
		at += size
		for alone := isUnspacedScript(r); at < len(text); at += size {
			r, size = utf8.DecodeRuneInString(text[at:])
			if !isWordRune(r) || (alone || isUnspacedScript(r)) && !unicode.Is(unicode.M, r) {
				break
			}
			plain = plain && r < utf8.RuneSelf
		}
		if !yield(normalizeWord(text[start:at], plain), start, at) {
			return
		}
	}
}

// normalizeWord returns the canonical form of a word. Lower case may make it
// longer; it is truncated at the end of a rune.
func normalizeWord(word string, plain bool) string {
	if plain {
		return lower(word[:min(len(word), maxWord)])
	}
	if len(word) > 2*maxWord {
		word = word[:2*maxWord] // enough for the result, and limits the work
	}
	spelled := make([]byte, 0, len(word))
	for _, r := range word {
		if r != utf8.RuneError {
			spelled = utf8.AppendRune(spelled, unicode.ToLower(r))
		}
	}
	spelled = norm.NFC.Bytes(spelled)
	end := min(len(spelled), maxWord)
	for end < len(spelled) && !utf8.RuneStart(spelled[end]) {
		end--
	}
	return string(spelled[:end])
}

// lower is for ASCII words, most of which are in lower case.
func lower(word string) string {
	for i := range len(word) {
		if c := word[i]; c >= 'A' && c <= 'Z' {
			changed := []byte(word)
			for ; i < len(changed); i++ {
				if c := changed[i]; c >= 'A' && c <= 'Z' {
					changed[i] = c + 'a' - 'A'
				}
			}
			return string(changed)
		}
	}
	return word
}

// isWordRune reports whether a rune is part of a word.
func isWordRune(r rune) bool {
	if r < utf8.RuneSelf {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	}
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.Is(unicode.M, r))
}

// isUnspacedScript reports whether a rune belongs to a script that has no spaces
// between words.
func isUnspacedScript(r rune) bool {
	return r >= 0x0E00 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}
