package b3

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// Prefix starts the text of every address.
const Prefix = "b3:"

// textLen is the length of an address as text.
const textLen = len(Prefix) + 2*len(Address{})

// Address names content by its BLAKE3-256 hash. It is comparable. The zero
// Address stands for "no address": no known content has it.
type Address [32]byte

// Parse reads an address from its one spelling: "b3:" and 64 lower-case hex
// digits. Anything else is a [Malformed].
func Parse(s string) (Address, error) {
	digits, ok := strings.CutPrefix(s, Prefix)
	if !ok {
		return Address{}, notAddress(s, "it does not start with "+Prefix)
	}
	if len(digits) != 2*len(Address{}) {
		return Address{}, notAddress(s, fmt.Sprintf("there are %d bytes after %s, not 64", len(digits), Prefix))
	}
	var a Address
	for i := range a {
		high, low := nibble(digits[2*i]), nibble(digits[2*i+1])
		if high|low > 0x0f {
			return Address{}, notAddress(s, badDigit(digits))
		}
		a[i] = high<<4 | low
	}
	return a, nil
}

// nibble returns the value of a lower-case hex digit, and more than 15 for any
// other byte.
func nibble(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	}
	return 0xff
}

// badDigit describes the first byte of digits that is not a lower-case hex
// digit. It runs only after Parse has found that there is one.
func badDigit(digits string) string {
	i := 0
	for nibble(digits[i]) <= 0x0f {
		i++
	}
	where := fmt.Sprintf("%q at position %d", digits[i:i+1], len(Prefix)+i)
	if 'A' <= digits[i] && digits[i] <= 'F' {
		return where + " is upper case"
	}
	return where + " is not a hex digit"
}

// String returns the address as Parse reads it.
func (a Address) String() string {
	var text [textLen]byte
	return string(a.appendTo(text[:0]))
}

// AppendText appends the text of the address to b. The error is always nil.
func (a Address) AppendText(b []byte) ([]byte, error) {
	return a.appendTo(b), nil
}

// MarshalText returns the text of the address. The error is always nil.
func (a Address) MarshalText() ([]byte, error) {
	return a.appendTo(make([]byte, 0, textLen)), nil
}

// UnmarshalText is Parse for encoders such as encoding/json. The address is
// left as it was when the text is malformed.
func (a *Address) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	*a = parsed
	return nil
}

// IsZero reports whether this is the zero Address.
func (a Address) IsZero() bool {
	return a == Address{}
}

func (a Address) appendTo(b []byte) []byte {
	return hex.AppendEncode(append(b, Prefix...), a[:])
}
