package config

import "strings"

// Rate is a number of bytes a second; zero is no limit. In a file it is a Size,
// or the word "off": "2MiB", "2MiB/s", "off".
type Rate int64

// offWord is the word for no limit.
const offWord = "off"

// String is the limit with its unit, or the word.
func (r Rate) String() string {
	if r == 0 {
		return offWord
	}
	return Size(r).String()
}

// ParseRate reads what String writes, and a size with "/s" behind it.
func ParseRate(text string) (Rate, bool) {
	if text == offWord {
		return 0, true
	}
	size, ok := ParseSize(strings.TrimSuffix(text, "/s"))
	return Rate(size), ok
}
