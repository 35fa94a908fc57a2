package index

import (
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// maxWord is how many bytes of a word count. What is longer is no word; it is
// found by its beginning.
const maxWord = 128

// EachWord calls yield with every word of a text and where it is, until yield
// says that it is enough. A word is letters, digits and the marks on them, in
// lower case and in the normal form of Unicode. Where people write without
// spaces, each letter is a word: a phrase then finds what was meant.
//
// A query and what it is held against are taken apart by this same function.
func EachWord(text string, yield func(word string, start, end int) bool) { eachWord(text, yield) }

func eachWord(text string, yield func(word string, start, end int) bool) {
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRuneInString(text[at:])
		if !inWord(r) {
			at += size
			continue
		}
		start, plain := at, r < utf8.RuneSelf
		at += size
		for alone := standsAlone(r); at < len(text); at += size {
			r, size = utf8.DecodeRuneInString(text[at:])
			if !inWord(r) || (alone || standsAlone(r)) && !unicode.Is(unicode.M, r) {
				break
			}
			plain = plain && r < utf8.RuneSelf
		}
		if !yield(spell(text[start:at], plain), start, at) {
			return
		}
	}
}

// spell writes a word in the one way that counts. Lower case may make it
// longer, and it is cut where a letter ends.
func spell(word string, plain bool) string {
	if plain {
		return lower(word[:min(len(word), maxWord)])
	}
	if len(word) > 2*maxWord {
		word = word[:2*maxWord] // enough for what is left in the end, and no work for what is not
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

// lower is for words of plain letters, most of which are in lower case.
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

// inWord reports whether a rune is a part of words.
func inWord(r rune) bool {
	if r < utf8.RuneSelf {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	}
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.Is(unicode.M, r))
}

// standsAlone reports whether a rune belongs to a script that has no spaces
// between words.
func standsAlone(r rune) bool {
	return r >= 0x0E00 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}
