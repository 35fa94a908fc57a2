package config

import (
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes. In a file it is an integer, or a text with a
// unit: 65536, "64KiB", "64 KiB". In a variable or a flag it is the same text.
type Size int64

// The units of a Size. The decimal ones (kB, MB) are rejected: "256MB" is often
// meant as the binary unit, and the intent cannot be known.
const (
	Byte Size = 1
	KiB       = 1024 * Byte
	MiB       = 1024 * KiB
	GiB       = 1024 * MiB
	TiB       = 1024 * GiB
)

// units is sorted, the largest first.
var units = []struct {
	name  string
	bytes Size
}{{"TiB", TiB}, {"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}, {"B", Byte}}

// String writes the size with the largest unit that loses nothing.
func (s Size) String() string {
	largest := len(units) - 1 // bytes, which always fit
	for i := largest; i >= 0 && s != 0 && s%units[i].bytes == 0; i-- {
		largest = i
	}
	return strconv.FormatInt(int64(s/units[largest].bytes), 10) + units[largest].name
}

// ParseSize reads what String writes, and a bare number of bytes.
func ParseSize(text string) (Size, bool) {
	digits := strings.TrimLeft(text, "0123456789")
	number, err := strconv.ParseInt(text[:len(text)-len(digits)], 10, 64)
	if err != nil {
		return 0, false
	}
	name := strings.TrimPrefix(digits, " ")
	if digits == "" {
		name = "B"
	}
	for _, unit := range units {
		if unit.name == name {
			return Size(number) * unit.bytes, number <= math.MaxInt64/int64(unit.bytes)
		}
	}
	return 0, false
}
